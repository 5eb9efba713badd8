"""Other boundaries of a span, against a search through all of them."""

import pytest
import torch
from torch import Tensor

from vcc.qa.other_edges import SHARED, other_edges
from vcc.qa.windows import Found, with_other


def by_hand(logits: Tensor, first: int, last: int, longest: int) -> list[tuple[float, int, int]]:
    found = []
    for a in range(len(logits)):
        for b in range(a, min(a + longest, len(logits))):
            mine, theirs = set(range(a, b + 1)), set(range(first, last + 1))
            if mine & theirs and len(mine & theirs) <= SHARED * len(mine | theirs):
                found.append((float(logits[a, 0] + logits[b, 1]), a, b))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("seed", range(20))
def test_the_best_of_all_that_overlap_and_share_at_most_half(seed: int) -> None:
    drawn = torch.Generator().manual_seed(seed)
    logits = torch.randn(30, 2, generator=drawn)
    first = int(torch.randint(0, 28, (1,), generator=drawn))
    last, longest = min(first + seed % 7, 29), 1 + seed % 11
    expected = by_hand(logits, first, last, longest)
    found = other_edges(logits, first, last, longest)
    if not expected:
        assert found is None
        return
    assert found is not None and found[1:] == expected[0][1:] and found[0] == pytest.approx(expected[0][0])


def test_none_where_no_answer_may_begin_or_end() -> None:
    logits = torch.full((10, 2), -torch.inf)
    logits[4:6] = 0.0
    assert other_edges(logits, 4, 5, 10) in ((0.0, 4, 4), (0.0, 5, 5))  # half of it
    logits[4:6] = -torch.inf
    assert other_edges(logits, 4, 5, 10) is None


def test_a_span_keeps_what_it_was_and_its_other_boundaries_are_places_of_the_document() -> None:
    logits = torch.tensor([[0.0, 1.0], [5.0, 0.0], [0.0, 4.0], [0.0, 0.0], [0.0, 3.0]])  # place 0 is "no answer"
    span = Found(100, 101, 8.0, 1.0)
    found = with_other(span, logits, 100, 10)
    assert (found.first, found.last, found.score, found.none) == (100, 101, 8.0, 1.0)
    assert found.other is not None and (found.other.first, found.other.last) == (100, 103)
    assert found.other.score == pytest.approx(5.0 + 3.0 - 1.0)
