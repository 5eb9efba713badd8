"""Every loader on the real data, where it is. The counts are those of its README unless a comment says so."""

from functools import cache

import pytest

from tests.data.words import real_data, real_tokenizer
from vcc.data.features import ExampleTokenizer, TruncationReport
from vcc.data.haystack import TOKENS_PER_WORD
from vcc.errors import DataError
from vcc.tasks import SPLITS, TASKS

COUNTS = {
    "cuad": (16_646, 2_542, None),
    "squad": (11_877, 6_078, None),
    "hotpotqa": (100, 682, None),
    "musique": (100, 200, None),
    "2wikimultihop": (None, 164, None),
    "qmsum": (1_257, 272, 281),
    "squality": (250, 125, 260),
    "crd3": (127, 16, 16),
    "sumpubmed": (1_500, 150, 150),
    "multinews": (None, None, 200),
}
MADE = [("squad_haystack", "squad", 6_078), ("needle_in_books", "books", 500), ("babi_in_books", "babi", 1_000)]


@cache
def load(name, split):
    return TASKS[name]().load(split, str(real_data(name).parent))


@pytest.mark.parametrize("name", COUNTS)
def test_every_record_loads(name):
    for split, count in zip(SPLITS, COUNTS[name], strict=True):
        if count is None:
            with pytest.raises(DataError, match=f"no {split} split of {name}"):
                load(name, split)
            continue
        examples = load(name, split)
        assert len(examples) == count == len({example.id for example in examples})
        assert all(example.question and example.document for example in examples)


def test_cuad_has_94_7_percent_of_its_answers_as_spans():
    examples = [*load("cuad", "train"), *load("cuad", "validation")]
    answers, spans = sum(len(e.answers) for e in examples), sum(len(e.answer_spans) for e in examples)
    assert answers == 12_101 and spans / answers == pytest.approx(0.947, abs=0.001)
    assert len({e.group for e in examples}) == 468  # the README says 470 contracts: two have text and no question
    assert len({id(e.document) for e in examples}) == 468  # one string a contract, shared by its 41 questions


@pytest.mark.parametrize("name, missing", [("hotpotqa", 0), ("musique", 0), ("2wikimultihop", 1)])
def test_multi_hop_answers_are_in_their_documents(name, missing):
    assert sum(not e.answer_spans for e in load(name, "validation")) == missing


@pytest.mark.parametrize("name, folder, count", MADE)
def test_made_tasks_hide_their_answers_in_real_text(name, folder, count):
    root = real_data(folder).parent
    examples = TASKS[name](lengths=(4096, 16384)).load("validation", str(root))
    assert len(examples) == count
    for i in range(0, count, count // 20):
        example = examples[i]
        assert len(example.document.split()) == pytest.approx(example.meta["length"] / TOKENS_PER_WORD, abs=40)
        assert {example.document[a:b] for a, b in example.answer_spans} == set(example.answers)


def test_real_clauses_survive_tokenization():
    """Token spans cover the clause and at most the word around it."""
    tokenize = ExampleTokenizer(real_tokenizer("bert_uncased"), "span", 131_072)
    examples = load("cuad", "validation")[:82]  # two contracts
    features = [tokenize(example) for example in examples]
    assert tokenize.cache.misses == 2 and TruncationReport.of(features).cut_tokens == 0
    for example, one in zip(examples, features, strict=True):
        offsets = one.row.offsets
        for (start, end), (first, last) in zip(example.answer_spans, one.spans, strict=True):
            assert offsets[first, 0] <= start and offsets[last, 1] >= end
            assert example.document[start:end].strip() in example.document[offsets[first, 0] : offsets[last, 1]]
