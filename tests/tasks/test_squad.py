"""SQuAD 2.0's official scores, against the definition written out and examples worked by hand."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from vcc.data.example import Example, Prediction
from vcc.tasks.squad import Squad, best_threshold, scores_at_chosen_threshold

WORKED = [  # prediction, answers, em, f1: by hand, with the published rules
    ("the Normans", ("Normans", "The Norman people"), 1.0, 1.0),
    ("10th and 11th centuries", ("in the 10th and 11th centuries", "the 10th"), 0.0, 8 / 9),
    ("Rollo.", ("rollo",), 1.0, 1.0),
    ("King Charles III", ("Charles",), 0.0, 0.5),
    ("", ("Denmark",), 0.0, 0.0),
    ("Denmark", (), 0.0, 0.0),
    ("", (), 1.0, 1.0),
]


def made(text: str, none: float, answers: tuple[str, ...], group: str, i: int) -> tuple[Prediction, Example]:
    spans = ((text, 0.9 * (1 - none)), ("other", 0.1 * (1 - none)))
    return Prediction(str(i), "", spans=spans), Example(str(i), "?", "d", answers, group=group)


def test_the_worked_examples_have_their_official_scores() -> None:
    examples = [Example(str(i), "?", "d", answers, group="a") for i, (_, answers, *_) in enumerate(WORKED)]
    found = Squad().metrics([Prediction(str(i), text) for i, (text, *_) in enumerate(WORKED)], examples)
    assert found["em"] == pytest.approx(100 * sum(em for *_, em, _ in WORKED) / len(WORKED))
    assert found["f1"] == pytest.approx(100 * sum(f1 for *_, f1 in WORKED) / len(WORKED))
    assert "official_f1" not in found, "no candidates, nothing to choose"


def test_each_half_is_scored_at_the_threshold_of_the_other() -> None:
    """Articles a and c choose for b, and b for them."""
    rows = [
        *(made("right", none, ("right",), "a", i) for i, none in enumerate((0.1, 0.2))),
        *(made("right", none, (), "a", i) for i, none in enumerate((0.65, 0.85), 2)),
        *(made("right", none, ("right",), "b", i) for i, none in enumerate((0.1, 0.7), 4)),
        *(made("right", none, (), "b", i) for i, none in enumerate((0.8, 0.9), 6)),
        *(made("right", none, (), "c", i) for i, none in enumerate((0.88, 0.99), 8)),
    ]
    found = scores_at_chosen_threshold([p for p, _ in rows], [e for _, e in rows])
    # From a and c: answer below 0.65, which loses the second of b. From b: answer below 0.8, which is wrong once in a.
    assert found["official_em"] == found["official_f1"] == pytest.approx(100 * 8 / 10)
    assert found["official_answerable_f1"] == pytest.approx(100 * 3 / 4)
    assert found["official_unanswerable_em"] == pytest.approx(100 * 5 / 6)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_threshold_is_better(seed: int) -> None:
    chance = random.Random(seed)
    leads = np.array([chance.gauss(0, 3) for _ in range(30)])
    gains = np.array([chance.choice([-1.0, -1.0, 0.0, 0.4, 1.0]) for _ in range(30)])
    total = gains[leads > best_threshold(leads, gains)].sum()
    tried = [gains[leads > threshold].sum() for threshold in (-np.inf, *leads)]
    assert total == pytest.approx(max(tried))


def test_halves_are_of_articles_and_make_the_whole(tmp_path: Path) -> None:
    lines = [
        {"id": f"{a}{i}", "title": a, "context": "x", "question": "?", "answers": [], "answer_starts": []}
        for a in "abcde"
        for i in range(3)
    ]
    (tmp_path / "validation.jsonl").write_text("\n".join(map(json.dumps, lines)))
    first, second = (Squad(half).load("validation", str(tmp_path)) for half in ("first", "second"))
    assert {e.group for e in first} == {"a", "b"} and {e.group for e in second} == {"c", "d", "e"}
    assert [*first, *second] == list(Squad().load("validation", str(tmp_path)))
