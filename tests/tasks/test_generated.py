"""Tasks that are made: needle, needle in books, SQuAD in a haystack, bAbI in books."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcc.data.example import Prediction
from vcc.data.features import ExampleTokenizer
from vcc.data.haystack import TOKENS_PER_WORD
from vcc.errors import DataError
from vcc.tasks import TASKS
from vcc.tasks.needle import ASKED, SAID, Needle, needle_tokenizer

FACTS = ["Mary went to the hall.", "Bob slept.", "Mary went to the garden."]


@pytest.fixture
def library(tmp_path):
    """A folder with tiny books, SQuAD and bAbI."""

    def write(name, split, rows):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))

    for split in ("train", "validation"):
        lines = [f"Line {i} of a long {split} book." for i in range(300)]
        write("books", split, [{"id": "b", "text": "\r\n\r\n".join(lines)}])
        write(
            "squad",
            split,
            [
                {
                    "id": f"{t}{q}",
                    "title": t,
                    "question": f"Which {q}?",
                    "context": f"It says {t} {q} here. " + "And more words follow. " * 5,
                    "answers": [f"{t} {q}"] * (q < 3),
                    "answer_starts": [8] * (q < 3),
                }
                for t in "ABC"
                for q in range(4)
            ],
        )
    babi = [
        {
            "id": f"qa{t}-{i}",
            "task": f"qa{t}",
            "facts": FACTS,
            "question": "Where is Mary?",
            "answers": ["garden"],
            "support": [2],
        }
        for t in (1, 6)
        for i in range(20)
    ]
    write("babi", "train", babi)
    write("babi", "test", babi)
    return str(tmp_path)


@settings(max_examples=40)
@given(st.integers(32, 300), st.floats(0, 1), st.integers(1, 2), st.integers(0, 1000))
def test_a_needle_is_one_of_its_pairs_at_its_depth_in_a_row_exactly_full(length, depth, pairs, i):
    example = Needle(lengths=(length,), depths=(depth,), pairs=pairs).load("train")[i]
    words, (key, *more) = example.document.split(), example.question.split()
    keys = [word for word in words if word.startswith("key")]
    assert more == [key] * (ASKED - 1) and len(set(keys)) == pairs and keys.count(key) == SAID
    place = words.index(key)
    assert words[place : place + 2 * SAID] == example.answers[0].split() * SAID and words[place + 1].startswith("value")
    assert abs(place - depth * (len(words) - 2 * SAID)) < 3 * SAID  # half a step of their grid, and what is left over
    features = ExampleTokenizer(needle_tokenizer(), "span", length)(example)
    assert features.length == length and features.cut_tokens == 0
    first = 1 + ASKED + 1 + place  # after [CLS] key ... [SEP]
    assert features.spans == tuple((first + 2 * n, first + 2 * n + 1) for n in range(SAID))
    assert {example.document[a:b] for a, b in example.answer_spans} == set(example.answers)


def test_a_needle_follows_from_seed_split_and_index():
    task = TASKS["needle"](lengths=(64,), pairs=2)
    assert task.load("train")[7] == task.load("train")[7]
    reseeded = TASKS["needle"](lengths=(64,), pairs=2, seed=1)
    others = [task.load("test")[7], task.load("train")[8], reseeded.load("train")[7]]
    assert all(task.load("train")[7].document != other.document for other in others)


def test_lengths_and_depths_come_in_turn():
    examples = TASKS["needle"](lengths=(64, 128), depths=(0.0, 0.5), pairs=1).load("validation")[:5]
    assert [e.meta["length"] for e in examples] == [64, 128, 64, 128, 64]
    assert [e.meta["depth"] for e in examples] == [0.0, 0.0, 0.5, 0.5, 0.0]
    right = [Prediction(e.id, e.answers[0] if e.meta["length"] == 64 else "") for e in examples]
    scores = TASKS["needle"]().metrics(right, examples)
    assert scores["em"] == 60 and scores["em@length=64"] == 100 and scores["em@length=128"] == 0
    assert scores["em@depth=0.5"] == 50


def test_needle_refuses_what_it_cannot_do():
    with pytest.raises(DataError, match="takes no source"):
        TASKS["needle"]().load("train", "somewhere")
    with pytest.raises(ValueError, match="pairs 9 must lie in 1..8"):
        TASKS["needle"](pairs=9).load("train")
    with pytest.raises(ValueError, match=r"lengths \(8,\) must be"):
        TASKS["needle"](lengths=(8,)).load("train")[0]


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_a_needle_in_books_is_a_sentence_at_its_depth(library, depth):
    example = TASKS["needle_in_books"](lengths=(1000,), depths=(depth,), pairs=3).load("train", library)[3]
    ((start, end),) = example.answer_spans
    city = example.question.split()[-1].rstrip("?")
    assert f"The secret number of {city} is {example.document[start:end]}." in example.document
    assert example.document[start:end] == example.answers[0] and example.document.count("The secret number") == 3
    assert abs(start / len(example.document) - depth) < 0.1
    assert len(example.document.split()) == pytest.approx(1000 / TOKENS_PER_WORD, abs=30)


@pytest.mark.parametrize("filler", ["squad", "books"])
def test_squad_in_a_haystack_keeps_its_answers(library, filler):
    task = TASKS["squad_haystack"](lengths=(600,), depths=(0.5,), filler=filler)
    examples = task.load("validation", library)
    assert len(examples) == 12
    for example in examples:
        assert tuple(example.document[a:b] for a, b in example.answer_spans) == example.answers
        words = len(f"{example.document} {example.question}".split())
        assert words == pytest.approx(600 / TOKENS_PER_WORD, abs=2)
        if filler == "squad":  # nothing of the same article is in the hay
            assert example.document.count(f"It says {example.group} ") == 1
    assert [len(example.answers) for example in examples] == [1, 1, 1, 0] * 3
    predictions = [Prediction(e.id, e.answers[0] if e.answers else "") for e in examples]
    assert task.metrics(predictions, list(examples))["em"] == 100


def test_babi_facts_lie_in_order_in_the_book(library):
    task = TASKS["babi_in_books"](lengths=(500,))
    train, validation, test = (task.load(split, library) for split in ("train", "validation", "test"))
    assert (len(train), len(validation), len(test)) == (18, 2, 20)  # qa1 only: qa6 answers yes or no
    assert not {e.id for e in train} & {e.id for e in validation}
    for example in test:
        places = [example.document.index(fact) for fact in FACTS]
        assert places == sorted(places)
        assert [example.document[a:b] for a, b in example.answer_spans] == ["garden"]
    with pytest.raises(DataError, match="must name bAbI tasks"):
        TASKS["babi_in_books"](tasks=("qa99",)).load("test", library)


def test_a_missing_book_folder_is_named(tmp_path):
    with pytest.raises(DataError, match="no validation split of books"):
        TASKS["needle_in_books"]().load("test", str(tmp_path))


@pytest.mark.parametrize("name", ["needle_in_books", "squad_haystack", "babi_in_books"])
def test_examples_have_at_most_the_tokens_asked_for_by_whoever_counts_them(library, name):
    """Letters as tokens: words times 1.4 would give several times as many."""
    task = TASKS[name](lengths=(600, 900))
    letters = lambda example: len(example.question) + len(example.document)
    estimated = task.load("train", library)
    assert max(map(letters, estimated[:4])) > 900
    fitted = task.counting(letters).load("train", library)
    for i in range(4):
        example, length = fitted[i], (600, 900)[i % 2]
        assert 0.7 * length < letters(example) <= length
        assert bool(example.answer_spans) == bool(example.answers) and example.meta["length"] == length
        assert {example.document[a:b] for a, b in example.answer_spans} <= set(example.answers)
        assert example.id == estimated[i].id and example.meta["depth"] == estimated[i].meta["depth"]
