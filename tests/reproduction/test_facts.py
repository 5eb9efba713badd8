"""HotpotQA with supporting facts and shuffled paragraphs, and multiple choice, at small scale."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from reproduction.experiment import Workspace
from reproduction.small import facts, jobs, reports
from reproduction.small.facts import PARAGRAPH, SENTENCE, ShuffledHops, facts_of, shuffled
from reproduction.small.layout import SmallLayout
from reproduction.small.small_tasks import hop_records, is_tested, small_task
from tests.reproduction import tiny
from vcc.data.features import ExampleTokenizer
from vcc.data.records import Record
from vcc.hosts import load
from vcc.tasks.hotpotqa import multi_hop_example

SMALL = replace(tiny.SMALL, reader=True, tasks=("hotpotqa", "fairytale_choices"))


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> SmallLayout:
    folder = tmp_path_factory.mktemp("facts")
    packed = tiny.packed(folder, SMALL.tasks)
    made = SmallLayout(packed, folder / "out", SMALL)
    jobs.begin(made)
    jobs.read(made, "start")
    return made


RECORD = Record("here", tiny.hop("a", 5))
HUBS = Record(
    "there",
    {
        "id": "b", "question": "who ?", "answer": "Ann",
        "context": {"title": ["One", "Two"], "sentences": [["Ann is here.", " She stays."], ["Bob left.", "", " Oh."]]},
        "supporting_facts": {"title": ["Two", "One"], "sent_id": [2, 0]},
    },
)  # fmt: skip


@pytest.mark.parametrize("record", [RECORD, HUBS])
@pytest.mark.parametrize("draw", [None, 1, 2])
def test_facts_are_where_the_document_has_them(record: Record, draw: int | None) -> None:
    """Every title and sentence, in the record's own words, at its place in the text that the reader gets."""
    record = record if draw is None else shuffled(record, draw, 0)
    document = multi_hop_example(record).document
    value = record.fields.get("paragraphs") or list(zip(*record.fields["context"].values(), strict=True))
    raw = record.fields["supporting_facts"]
    marked = list(zip(raw["title"], raw["sent_id"], strict=True)) if isinstance(raw, dict) else [(t, s) for t, s in raw]
    expected = []
    for title, sentences in value:
        expected.append((title, PARAGRAPH, title in [one for one, _ in marked]))
        expected += [(s.strip(), SENTENCE, (title, i) in marked) for i, s in enumerate(sentences) if s.strip()]
    found = list(facts_of(record))
    assert [(fact.kind, fact.supports) for fact in found] == [(kind, supports) for _, kind, supports in expected]
    for fact, (words, _, _) in zip(found, expected, strict=True):
        assert document[fact.start :].startswith(words) and document[fact.start - 1] in "\n "


def test_an_order_of_paragraphs_is_drawn_for_every_epoch() -> None:
    drawn = [[title for title, _ in shuffled(RECORD, draw, 0).fields["paragraphs"]] for draw in range(8)]
    own = [title for title, _ in RECORD.fields["paragraphs"]]
    assert all(sorted(one) == sorted(own) for one in drawn) and len({tuple(one) for one in drawn}) > 3
    assert shuffled(RECORD, 3, 0).fields == shuffled(RECORD, 3, 0).fields
    for draw in range(8):
        example = multi_hop_example(shuffled(RECORD, draw, 0))
        assert example.answer_spans
        assert {example.document[a:b] for a, b in example.answer_spans} == set(example.answers)


def test_tokens_of_facts_begin_their_sentences(layout: SmallLayout) -> None:
    tokenizer = load.load_tokenizer(layout.start(), local=True)
    data = ShuffledHops([RECORD], ExampleTokenizer(tokenizer, "span", 128), 0)
    for draw in range(3):
        features, record = data[draw], shuffled(RECORD, draw, 0)
        document = multi_hop_example(record).document
        words = [document[fact.start :].split()[0] for fact in facts_of(record)]
        assert tokenizer.convert_ids_to_tokens(features.row.input_ids[[place for place, *_ in features.facts]]) == words
        assert [one[1:] for one in features.facts] == [(fact.kind, int(fact.supports)) for fact in facts_of(record)]
    short = ShuffledHops([RECORD], ExampleTokenizer(tokenizer, "span", 40), 0)[0]
    assert 0 < len(short.facts) < len(data[0].facts) and max(place for place, *_ in short.facts) < 39


def test_questions_are_trained_on_or_tested(layout: SmallLayout) -> None:
    source = str(layout.packed / "data")
    train, test = hop_records("train", source), hop_records("validation", source)
    names = [{record.fields["id"] for record in part} for part in (train, test)]
    assert len(names[0]) + len(names[1]) == 24 and not names[0] & names[1] and names[1]
    assert all(is_tested(record) for record in test)


@pytest.mark.parametrize("name", ["vcc-all", "longformer"])
def test_a_model_learns_answers_and_facts(layout: SmallLayout, name: str) -> None:
    jobs.tune(layout, name, "hotpotqa")
    found = json.loads(layout.scores(name, "hotpotqa").read_text())["metrics"]
    assert all(0 <= found[key] <= 100 for key in ("f1", "em", "fact_f1", "fact_em"))
    at = Workspace("small", layout.out, None, "", "", "", SMALL)
    table = reports.comparison(at, [name])[0]
    row = next(row for row in table.rows if row[0] == name)
    assert row[table.columns.index("hotpotqa fact_f1")].startswith(f"{found['fact_f1']:.1f}")  # type: ignore[union-attr]
    saved = layout.tuned(name, "hotpotqa")
    assert (saved / facts.FILE).is_file()
    jobs.score(layout, name, "hotpotqa")  # loads what was saved
    assert json.loads(layout.scores(name, "hotpotqa").read_text())["metrics"] == found


def test_the_score_of_facts_counts_sentences(layout: SmallLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    """The truth scores 100, its opposite 0, and one of two facts with nothing else two thirds."""
    tokenizer = load.load_tokenizer(layout.start(), local=True)
    model = jobs.variants.reading("dense", layout.reader(), 128).eval()
    facts.add_facts(model)
    objective = facts.with_facts(jobs.answering(layout, "dense", model, tokenizer, 128))
    tokenize = ExampleTokenizer(tokenizer, "span", 128)

    def scored(say: object) -> dict[str, float]:
        monkeypatch.setattr(facts.FactAnswering, "fact_logits", lambda self, model, hidden, batch: say(batch["facts"]))  # type: ignore[operator]
        return facts.fact_scores(model, objective, tokenize, [RECORD, RECORD], 2, "cpu")

    def first(truth: Tensor) -> Tensor:
        right = (truth[..., 2] == 1) & (truth[..., 1] == SENTENCE)
        return ((right.cumsum(1) == 1) & right).float() - 0.5

    assert scored(lambda truth: truth[..., 2] - 0.5) == {"fact_f1": 100.0, "fact_em": 100.0}
    assert scored(lambda truth: 0.5 - truth[..., 2]) == {"fact_f1": 0.0, "fact_em": 0.0}
    assert scored(first) == {"fact_f1": pytest.approx(200 / 3), "fact_em": 0.0}


def test_facts_have_a_loss_of_their_own() -> None:
    """Against PyTorch on the two kinds by hand; padding does not count."""
    logits = torch.tensor([[0.3, -1.2, 2.0, 9.0]], dtype=torch.float64)
    truth = torch.tensor([[[5, PARAGRAPH, 1], [6, SENTENCE, 0], [9, SENTENCE, 1], [-100, -100, -100]]])
    by_hand = torch.nn.functional.softplus(torch.tensor([-0.3, -1.2, -2.0], dtype=torch.float64))
    torch.testing.assert_close(facts.fact_loss(logits, truth), by_hand[0] + by_hand[1:].mean())


@pytest.mark.parametrize("name", ["vcc-all", "longformer", "mra", "dense-512"])
def test_every_kind_learns_to_choose(layout: SmallLayout, name: str) -> None:
    examples = small_task("fairytale_choices").load("train", str(layout.packed / "data"))
    assert len(examples) == 12 and all(len(set(one.choices)) == 4 for one in examples)
    assert all(one.choices[one.label or 0] == one.answers[0] for one in examples)
    jobs.tune(layout, name, "fairytale_choices")
    found = json.loads(layout.scores(name, "fairytale_choices").read_text())
    assert 0 <= found["metrics"]["accuracy"] <= 100 and found["examples"] == 4


def test_choices_do_not_need_the_reader(layout: SmallLayout, tmp_path: Path) -> None:
    own = SmallLayout(layout.packed, tmp_path, replace(SMALL, reader=False))
    jobs.begin(own)
    jobs.pretrain(own, "vcc")
    jobs.answer(own, "vcc")
    jobs.tune(own, "vcc", "fairytale_choices")
    assert own.scores("vcc", "fairytale_choices").exists()
