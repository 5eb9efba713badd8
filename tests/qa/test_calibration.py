"""Probabilities from leads: those of the formula, in the order of the leads, finite whatever the model says."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.errors import UsageError
from vcc.qa.calibration import Calibration

LEADS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8).map(lambda leads: sorted(leads, reverse=True))


def test_lead_and_margin_are_weighed_as_fitted() -> None:
    fitted = Calibration(0.2, 0.1, -1.0)
    margins = [3.0 - 1.0, 1.0 - 3.0, -20.0]
    expected = [
        1 / (1 + math.exp(-(0.2 * lead + 0.1 * m - 1))) for lead, m in zip((3.0, 1.0, -40.0), margins, strict=True)
    ]
    assert fitted.probabilities([3.0, 1.0, -40.0]) == pytest.approx(expected)
    [alone] = fitted.probabilities([3.0])
    assert alone == pytest.approx(1 / (1 + math.exp(-(0.2 * 3 + 0.1 * 3 - 1)))), "only no answer competes with it"


def test_a_longer_text_changes_the_chance_up_to_a_length() -> None:
    fitted = Calibration(0.2, 0.0, -1.0, -0.5)
    found = [fitted.probabilities([3.0], tokens)[0] for tokens in (1, 64, 128, 1024, 10**6)]
    logits = [0.2 * 3 - 1 - 0.5 * times for times in (0, 0, 1, 4, 4)]
    assert found == pytest.approx([1 / (1 + math.exp(-z)) for z in logits])


@given(LEADS, st.floats(0, 3), st.floats(0, 3), st.floats(-10, 10))
def test_a_better_span_is_never_less_likely(leads: list[float], lead: float, margin: float, offset: float) -> None:
    chances = Calibration(lead, margin, offset).probabilities(leads)
    assert all(0 <= chance <= 1 for chance in chances) and chances == sorted(chances, reverse=True)


@pytest.mark.parametrize("wrong", [{"lead": -0.1}, {"margin": float("nan")}, {"offset": float("inf")}, {"lead": True}])
def test_what_cannot_be_a_calibration_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises((UsageError, ValueError), match="calibration"):
        Calibration(**wrong)
