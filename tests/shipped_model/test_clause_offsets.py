"""What clauses and distances add to a logit: found again where it was put in, and written with the model."""

import json
import math
import random
from pathlib import Path

import pytest

from shipped_model import clause_offsets
from shipped_model.clause_offsets import ClauseOffsetOptions, Fitted, fit, fit_clauses, ranked_answers
from vcc.data.example import Example
from vcc.errors import DataError
from vcc.qa.settings import QaSettings

TRUE = Fitted(0.6, {"Parties": 1.0, "Price Restrictions": -2.0})
SETTINGS = {"clause_calibration": {"lead": 0.3, "further": 0.4}, "clause_offsets": {"Insurance": 0.5}}


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def made(contracts: int = 60) -> tuple[list[Example], dict[str, list[dict[str, float | str]]]]:
    """Questions whose answers are right as often as TRUE says, and the probabilities without it."""
    draw, examples, predictions = random.Random(0), [], {}
    known = Fitted(0.4, {"Insurance": 0.5})
    for contract in range(contracts):
        for category in ("Parties", "Price Restrictions", "Insurance"):
            logits = sorted((draw.gauss(0, 2) for _ in range(4)), reverse=True)
            right, said = [], []
            for rank, logit in enumerate(logits):
                text = f"{category.replace(' ', '')}-{contract}-{rank}"
                one = clause_offsets.Ranked(0, str(contract), category, text, logit, logits[0] - logit, False)
                if draw.random() < sigmoid(logit + TRUE.added(one)):
                    right.append(text)
                said.append({"text": text, "probability": sigmoid(logit + known.added(one))})
            name = f"{contract}__{category}"
            examples.append(Example(name, "?", "", tuple(right), group=str(contract), meta={"category": category}))
            predictions[name] = said
    return examples, predictions


def test_what_was_added_is_found() -> None:
    examples, predictions = made(contracts=400)
    answers = ranked_answers(examples, predictions, Fitted(0.4, {"Insurance": 0.5}))
    found = fit(answers)
    assert found.further == pytest.approx(TRUE.further, abs=0.1)
    assert found.offsets["Parties"] == pytest.approx(1.0, abs=0.25)
    assert found.offsets["Price Restrictions"] == pytest.approx(-2.0, abs=0.35)
    assert found.offsets["Insurance"] == pytest.approx(0.0, abs=0.25)
    assert found.offsets["Governing Law"] == 0.0, "never asked"


def test_it_is_written_with_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    examples, predictions = made()
    monkeypatch.setattr(clause_offsets, "contracts", lambda split, data: examples)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "qa": SETTINGS}))
    (tmp_path / "found.json").write_text(json.dumps(predictions))
    fit_clauses(ClauseOffsetOptions(tmp_path, tmp_path / "found.json", tmp_path))
    kept = json.loads((tmp_path / "config.json").read_text())
    settings = QaSettings.from_dict(kept["qa"])
    assert kept["model_type"] == "bert" and settings.clause_calibration.lead == 0.3
    assert settings.clause_calibration.further > 0.4 and settings.clause_offsets["Price Restrictions"] < -0.5
    assert "on contracts left out: aupr" in capsys.readouterr().out


def test_predictions_of_other_contracts_are_refused() -> None:
    examples, _ = made(contracts=1)
    with pytest.raises(DataError, match="3 of 3 questions have no predictions, the first is 0__Parties"):
        ranked_answers(examples, {}, Fitted(0.0, {}))
