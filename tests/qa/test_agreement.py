"""A place that several passages hold is judged by all of them."""

from itertools import permutations

import pytest

from vcc.data.answers import without_overlaps
from vcc.qa.agreement import LEAST, View, agreed
from vcc.qa.windows import Found


def view(start: int, end: int, *spans: tuple[int, int, float]) -> View:
    return View(start, end, [Found(*span, 0.5) for span in spans])


def best(*views: View) -> list[tuple[int, int, float]]:
    return [(one.first, one.last, one.score) for one in without_overlaps(agreed(views), 20)]


def test_a_lone_passage_keeps_its_scores() -> None:
    spans = [(3, 4, 7.3), (9, 9, 0.1), (11, 12, -25.7)]
    assert best(view(0, 20, *spans)) == spans
    apart = [view(0, 20, *spans), view(20, 40, (25, 25, 1.9)), view(60, 80)]
    assert best(*apart) == sorted([*spans, (25, 25, 1.9)], key=lambda one: -one[2])


def test_what_two_passages_find_likely_beats_what_one_likes_most() -> None:
    first = view(0, 20, (12, 13, 6.0), (15, 15, 5.0), (2, 2, -4.0))
    second = view(10, 30, (15, 16, 4.5), (28, 28, -6.0))
    # 12 to 13: 6.0, and at the last of the second passage -6.0; 15: 5.0 and 4.5; 15 to 16: 4.5 and, at most, 4.5
    assert best(first, second) == [(15, 15, (5.0 + 4.75) / 2), (12, 13, (6.0 + 0.0) / 2), (2, 2, -4.0), (28, 28, -6.0)]
    assert best(first)[0][:2] == (12, 13)


def test_only_passages_that_hold_the_whole_span_have_a_say() -> None:
    cut = view(13, 30, (13, 13, -8.0))
    assert best(view(0, 20, (12, 13, 6.0)), cut)[0] == (12, 13, 6.0)
    assert best(view(0, 20, (13, 14, 6.0)), cut)[0] == (13, 14, (6.0 - 1.0) / 2)


def test_a_very_low_lead_does_not_count_without_limit() -> None:
    assert best(view(0, 20, (3, 3, 8.0)), view(0, 20, (9, 9, -40.0)))[0] == (3, 3, (8.0 + (8.0 + LEAST) / 2) / 2)


def test_the_order_of_passages_does_not_matter() -> None:
    views = [
        view(0, 20, (12, 13, 6.0), (15, 15, 5.0)),
        view(10, 30, (15, 16, 4.5), (28, 28, -6.0)),
        view(5, 25, (13, 15, 5.5), (20, 21, 1.0)),
    ]
    orders = [best(*order) for order in permutations(views)]
    assert all(
        [one[:2] for one in order] == [one[:2] for one in orders[0]]
        and [one[2] for one in order] == pytest.approx([one[2] for one in orders[0]], abs=1e-12)
        for order in orders
    )
