"""CUAD's published test: ContractEval's rules on a worked example, and a run of the product on a small contract."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reproduction import cuad
from reproduction.cuad import AskedContract, CuadOptions, CuadTest, RankedSpan, ask_contracts, contract_eval
from tests.documents import small_model
from vcc.data.example import Example
from vcc.errors import UsageError

CLAUSE = "Neither party may assign this Agreement."


def test_contract_eval_counts_as_published() -> None:
    said = [f"So it is. {CLAUSE}", "", "", "An invention.", CLAUSE]
    labels = [[CLAUSE], [CLAUSE], [], [], [CLAUSE, "Another clause."]]
    found = contract_eval(said, labels)
    precision, recall = 1 / 2, 1 / 3  # one right, one alarm, two missed: the last holds one of two labels
    assert found["f1"] == pytest.approx(100 * 2 * precision * recall / (precision + recall))
    assert found["f2"] == pytest.approx(100 * 5 * precision * recall / (4 * precision + recall))
    assert found["none_wrongly"] == pytest.approx(100 / 3)
    assert found["jaccard"] == pytest.approx(100 * (6 / 9 + 0 + 6 / 8) / 3)


def test_the_contracts_are_asked_as_the_product_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    model = small_model.saved(tmp_path / "model")
    text = small_model.document().text
    examples = [
        Example(f"{name}__{kind}", f"What about {kind}?", text, (text[:20],) if kind == "Parties" else (), group=name,
                meta={"category": kind})
        for name in ("a", "b")
        for kind in ("Parties", "Insurance")
    ]  # fmt: skip
    monkeypatch.setattr(cuad, "contracts", lambda split, data: examples)
    ask_contracts(CuadOptions(tmp_path, tmp_path / "out", model))
    best = json.loads((tmp_path / "out" / cuad.PREDICTIONS).read_text())
    assert set(best) == {example.id for example in examples}
    assert all(0 <= one["probability"] <= 1 and one["text"] in text for spans in best.values() for one in spans)
    found = json.loads((tmp_path / "out" / cuad.SCORES).read_text())
    assert set(found["by_clause"]) == {"Parties", "Insurance"} and found["contracts"] == 2
    assert 0 <= found["official"]["aupr"] <= 100 and found["processor_seconds_a_contract"] > 0


def test_a_text_at_several_places_is_handed_in_once_with_its_best_score() -> None:
    """The published script takes the last score of a repeated text: the right name would be found at 0.1 only."""
    example = Example("a__Document Name", "What is it called?", "", ("LEASE",), group="a", meta={"category": "Name"})
    found = [RankedSpan("LEASE", 0.9, ""), RankedSpan("Exhibit", 0.5, ""), RankedSpan("LEASE", 0.1, "")]
    (handed_in,) = cuad.predictions([example], [found])
    assert handed_in.spans == (("LEASE", 0.9), ("Exhibit", 0.5))
    assert cuad.scores([example], [found], 0.5)["official"]["aupr"] == pytest.approx(100)


def test_the_best_span_is_judged_where_there_is_a_clause_and_its_score_everywhere() -> None:
    asked = [("a", "LEASE AGREEMENT", 0.9), ("b", "LEASE", 0.4), ("c", "", 0.4), ("d", "", 0.1)]
    examples = [Example(n, "?", "", (a,) if a else (), group=n, meta={"category": "Name"}) for n, a, _ in asked]
    found = cuad.scores(examples, [[RankedSpan("LEASE", score, "")] for *_, score in asked], 0.5)["best_span"]
    assert found["f1"] == pytest.approx(100 * (2 / 3 + 1) / 2), "one word of two is F1 of 2/3"
    assert found["auc"] == pytest.approx(100 * (1 + 1 + 1 + 0.5) / 4), "of four pairs three are in order, one is a tie"


def test_a_run_that_was_ended_asks_only_the_other_contracts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = [Example(name, "Who?", name, (), group=name, meta={"category": "Parties"}) for name in ("a", "b", "c")]
    asked: list[str] = []

    def ask(name: str, questions: list[Example], model: str | None, thorough: bool) -> AskedContract:
        if len(asked) == 2 and not thorough:
            raise KeyboardInterrupt
        asked.append(name)
        return AskedContract(name, 1.0, 2.0, [[RankedSpan(name, 0.5, name)]])

    (tmp_path / "model").mkdir()
    options = CuadOptions(tmp_path, tmp_path / "out", small_model.saved(tmp_path / "model"))
    monkeypatch.setattr(cuad, "contracts", lambda split, data: examples)
    monkeypatch.setattr(cuad, "ask_contract", ask)
    with pytest.raises(KeyboardInterrupt):
        ask_contracts(options)
    assert asked == ["a", "b"]
    asked.clear()
    ask_contracts(options)
    assert asked == ["c"]
    asked.clear()
    ask_contracts(replace(options, thorough=True))
    assert asked == ["a", "b", "c"], "thorough answers are kept apart"
    best = json.loads((options.out / cuad.PREDICTIONS).read_text())
    assert [best[name][0]["text"] for name in "abc"] == ["a", "b", "c"]
    monkeypatch.setattr(cuad, "contracts", lambda split, data: examples[1:])
    with pytest.raises(UsageError, match="holds 'a', not 'b'"):
        ask_contracts(options)


def test_the_report_stands_beside_published_results(tmp_path: Path) -> None:
    from reproduction.experiment import Workspace
    from reproduction.small.settings import Small

    at = Workspace("small", tmp_path, "DATA", "", "", "", Small())
    (step,) = CuadTest().steps(at)
    assert step.done == tmp_path / "cuad" / cuad.SCORES and not step.missing and len(CuadTest().report(at).tables) == 2
    step.done.parent.mkdir()
    official = {"aupr": 61.7, "aupr_low": 57.1, "aupr_high": 66.2, "p80": 19.7, "p90": 0.0}
    own = {"f1": 1.0, "f2": 2.0, "jaccard": 3.0, "none_wrongly": 4.0}
    times = {"contracts": 102, "seconds_a_contract": 1.0, "processor_seconds_a_contract": 2.0}
    clauses = {"Parties": {"aupr": 90.0, "p80": 80.0}}
    found = {"official": official, "by_clause": clauses, "contract_eval": own, "best_span": {"f1": 83.7, "auc": 96.9}}
    step.done.write_text(json.dumps(found | times))
    shown = CuadTest().report(at).markdown()
    assert "57.1 to 66.2" in shown and "96.9" in shown and "Opus 4.8" in shown and "GPT-4.1 mini" in shown
