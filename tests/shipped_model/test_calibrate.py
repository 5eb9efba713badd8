"""A fit finds the calibration that data was drawn from; its error on unseen documents is small, not a wrong one's."""

import random

import pytest

from shipped_model import calibrate
from shipped_model.calibrate import Judged, at_threshold, fit, unseen_error
from vcc.qa.calibration import Calibration

TRUE = Calibration(0.3, 0.2, -1.5)


def drawn(number: int, rule: Calibration = TRUE) -> list[Judged]:
    chance = random.Random(0)
    made = []
    for i in range(number):
        lead, margin = chance.gauss(3, 6), chance.uniform(0, 15)
        right = chance.random() < rule.probabilities([lead, lead - margin])[0]
        made.append(Judged("ab"[i % 2], f"document {i // 4}", lead, margin, right, True))
    return made


def test_the_rule_behind_the_data_is_found() -> None:
    found = fit(drawn(20_000))
    assert (found.lead, found.margin, found.offset) == pytest.approx((0.3, 0.2, -1.5), abs=0.05)
    assert unseen_error(drawn(20_000)) < 0.015


def test_an_error_of_ten_points_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "fit", lambda judged: Calibration(0.3, 0.2, -0.5))
    assert unseen_error(drawn(20_000)) > 0.05


def test_thresholds_are_counted_set_by_set() -> None:
    judged = [
        Judged("a", "1", 10.0, 20.0, True, True),
        Judged("a", "2", -10.0, 20.0, False, True),
        Judged("a", "3", 10.0, 20.0, False, False),
        Judged("b", "4", 10.0, 20.0, True, True),
    ]
    assert at_threshold(judged, Calibration(), 0.5) == (pytest.approx((1 / 2 + 1) / 2), pytest.approx((1 / 2 + 1) / 2))
