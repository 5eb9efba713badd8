"""A fit finds the calibration that data was drawn from; its error on unseen documents is small, not a wrong one's."""

import json
import lzma
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shipped_model import calibrate
from shipped_model.calibrate import Judged, at_threshold, chances, fit, judge, keep, left_out, unseen_error, weights
from shipped_model.data import Page, TokenQuestion, Unit
from shipped_model.find import line
from vcc.data.features import tokenize_text
from vcc.documents.formats.read import read_data
from vcc.documents.shipped import load_asker
from vcc.qa.calibration import Calibration
from vcc.qa.windows import Found

TRUE = Calibration(0.3, 0.2, -1.5, -0.4)


def drawn(number: int, rule: Calibration = TRUE, seed: int = 0) -> list[Judged]:
    chance = random.Random(seed)
    made = []
    for i in range(number):
        lead, margin, tokens = chance.gauss(3, 6), chance.uniform(0, 15), chance.choice([100, 400, 900])
        right = chance.random() < rule.probabilities([lead, lead - margin], tokens)[0]
        made.append(Judged("ab"[i % 2], f"document {i // 4}", lead, margin, right, True, tokens))
    return made


def test_the_rule_behind_the_data_is_found() -> None:
    found = fit(drawn(20_000))
    assert (found.lead, found.margin, found.offset, found.size) == pytest.approx((0.3, 0.2, -1.5, -0.4), abs=0.1)
    assert unseen_error(drawn(20_000)) < 0.015
    assert fit(drawn(2_000), clauses=True).size == 0


def test_an_error_of_ten_points_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "fit", lambda judged, clauses=False: Calibration(0.3, 0.2, -0.5, -0.4))
    assert unseen_error(drawn(20_000)) > 0.05


def test_a_set_left_out_is_judged_by_the_others_only() -> None:
    """Sets a and b follow one rule; c another, by which its spans are always wrong."""
    judged = [*drawn(4_000), *(replace(one, set="c", right=False) for one in drawn(1_000, seed=1))]
    found = {one.set: one for one in left_out(judged)}
    assert found["c"].right == 0 and found["c"].questions == 1_000
    expected = calibrate.chances([one for one in judged if one.set == "c"], TRUE).mean()
    assert found["c"].said == pytest.approx(float(expected), abs=0.03)
    assert found["a"].said < found["a"].right - 0.05, "c lowers what is said of the others"


def test_unanswerable_questions_count_for_a_fifth_of_a_set_unless_they_are_clauses() -> None:
    judged = [Judged("a", str(i), 0.0, 0.0, False, i < 2) for i in range(10)]
    found = weights(judged)
    assert float(found.sum()) == pytest.approx(1) and float(found[2:].sum()) == pytest.approx(0.2)
    assert weights(judged, clauses=True).tolist() == pytest.approx([0.1] * 10)


def test_thresholds_are_counted_set_by_set() -> None:
    judged = [
        Judged("a", "1", 10.0, 20.0, True, True),
        Judged("a", "2", -10.0, 20.0, False, True),
        Judged("a", "3", 10.0, 20.0, False, False),
        Judged("b", "4", 10.0, 20.0, True, True),
    ]
    assert at_threshold(judged, Calibration(), 0.5) == (pytest.approx((1 / 2 + 1) / 2), pytest.approx((1 / 2 + 1) / 2))


def test_settings_are_written_and_the_others_stay(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"hidden_size": 384, "qa": {"second_looks": 12, "threshold": 0.4}})
    )
    keep(tmp_path, TRUE, Calibration(0.5), 0.55)
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "hidden_size": 384,
        "qa": {
            "second_looks": 12,
            "threshold": 0.55,
            "calibration": {"lead": 0.3, "margin": 0.2, "offset": -1.5, "size": -0.4},
            "clause_calibration": {"lead": 0.5, "margin": 0.0, "offset": 0.0, "size": 0.0},
        },
    }


SHIP = (
    "The Aurora is a large and old vessel. It has 474 cabins and a crew of 30 sailors. It was built in Belfast in "
    "1912, and rebuilt twice. Today there are 474 cabins on four decks. Its captain is Ada Brown."
)


@pytest.mark.parametrize(
    ("question", "spans", "best"),
    [
        ("How many cabins does the ship have?", {"large and old vessel": 6.5, "474 cabins": 5.0, "30": 1.0}, "474"),
        ("How many cabins does the ship have?", {"474": 4.0, "there are 474": 3.5, "1912": -2.0}, "474"),
        ("Who is its captain?", {"Its captain": 7.0, "Ada Brown": 6.0, "Belfast": 2.5}, "Ada Brown"),
        ("Who is its captain?", {"Belfast": 0.5}, "Belfast"),
    ],
)
@pytest.mark.parametrize("hidden", [False, True])
def test_a_fit_sees_the_score_that_the_product_shows(
    tmp_path: Path, question: str, spans: dict[str, float], best: str, hidden: bool
) -> None:
    """A number where one is asked for, and no words of the question."""
    asker = load_asker()
    tokens = tokenize_text(SHIP, asker.tokenizer)
    found = []
    for words, lead in spans.items():
        first = int(np.searchsorted(tokens.offsets[:, 1], SHIP.index(words), "right"))
        last = int(np.searchsorted(tokens.offsets[:, 0], SHIP.index(words) + len(words))) - 1
        found.append(Found(first, last, lead, 1.5))
    document = read_data(SHIP.encode(), "ship.txt")
    reply = asker.reply(document, asker.index(document), question, found, 1, 0.0)
    answer = reply.answers[0]
    assert answer.text == best

    asked = TokenQuestion(asker.qa.ids_of(question), ((found[-1].first, found[-1].last),))
    page, before = Page(tokens.ids, (asked,)), 0
    if hidden:  # behind 7 other tokens
        before = 7
        page = Page(np.concatenate([np.full(before, 2000), tokens.ids]), (asked,))
        found = [replace(one, first=one.first + before, last=one.last + before) for one in found]
    written = line("hidden-60" if hidden else "squad", replace(asked, spans=shifted(asked, before)), page, found)
    with lzma.open(tmp_path / "found.jsonl.xz", "wt") as file:
        file.write(json.dumps(written))
    text = {"text": SHIP, "offsets": tokens.offsets.tolist(), "group": "ship"}
    kept = {"squad": [({"question": question, "answers": [answer.text]}, text, Unit(tokens.ids, (asked,)))]}
    [judged] = judge(tmp_path / "found.jsonl.xz", kept, asker.tokenizer)
    assert judged.right
    if not hidden:
        assert judged.tokens == len(tokens.ids)
    own = replace(judged, tokens=len(tokens.ids))
    assert float(chances([own], asker.qa.settings.calibration)) == pytest.approx(answer.score, abs=1e-9)


def shifted(question: TokenQuestion, by: int) -> tuple[tuple[int, int], ...]:
    return tuple((first + by, last + by) for first, last in question.spans)
