"""The kernel takes the spans that plain PyTorch takes, in the same order."""

import pytest
import torch
from torch import Tensor

from vcc.data.answers import best_spans_of_rows, choose_spans, span_table

SHAPES = [  # rows, places, spans, tokens of a span
    (1, 1, 3, 5),
    (2, 3, 3, 1),
    (3, 2, 5, 2),
    (2, 17, 20, 4),
    (3, 40, 6, 7),
    (1, 40, 40, 64),
    (1, 64, 5, 16),
    (1, 150, 20, 9),
    (1, 150, 8, 33),
]


def logits(rows: int, n: int, hidden: float, seed: int) -> tuple[Tensor, Tensor]:
    """Of starts and ends, part of them hidden."""
    draw = torch.Generator().manual_seed(seed)
    start, end = torch.randn(2, rows, n, generator=draw)
    start[torch.rand(rows, n, generator=draw) < hidden] = -torch.inf
    end[torch.rand(rows, n, generator=draw) < hidden] = -torch.inf
    return start, end


def by_kernel(start: Tensor, end: Tensor, top: int, max_tokens: int, block: int, device: str) -> Tensor:
    from vcc.data.kernels.best_spans import choose_spans as kernel

    return kernel(start.to(device), end.to(device), min(top, start.shape[1]), max_tokens, block).cpu()


def assert_same(found: Tensor, expected: Tensor) -> None:
    """To the last bit, but where a row has no more spans."""
    assert found.shape == expected.shape and torch.equal(found[..., 0], expected[..., 0])
    there = expected[..., 0] > -torch.inf
    assert torch.equal(found[there], expected[there])


@pytest.mark.parametrize(("rows", "n", "top", "max_tokens"), SHAPES)
@pytest.mark.parametrize(  # places of one block or of several
    ("hidden", "block"), [pytest.param(0.0, 4, marks=pytest.mark.slow), (0.3, 32), (0.9, 4)]
)
def test_kernel_equals_the_reference(
    device: str, rows: int, n: int, top: int, max_tokens: int, hidden: float, block: int
) -> None:
    start, end = logits(rows, n, hidden, 100 * n + top)
    expected = choose_spans(start, end, min(top, n), max_tokens)
    assert_same(by_kernel(start, end, top, max_tokens, block, device), expected)


@pytest.mark.parametrize("kinds", [1, pytest.param(2, marks=pytest.mark.slow), 5])
def test_of_equal_spans_the_first_is_taken(device: str, kinds: int) -> None:
    draw = torch.Generator().manual_seed(kinds)
    start, end = torch.randint(kinds, (2, 3, 50), generator=draw).float()
    assert_same(by_kernel(start, end, 20, 6, 8, device), choose_spans(start, end, 20, 6))


def test_rows_without_any_span_have_none(device: str) -> None:
    start, end = logits(4, 20, 0.0, 0)
    start[0], end[1] = -torch.inf, -torch.inf
    start[2, 5:], end[2, :5] = -torch.inf, -torch.inf  # all ends come too late for the starts
    found = by_kernel(start, end, 5, 1, 8, device)
    assert_same(found, choose_spans(start, end, 5, 1))
    assert (found[:3, :, 0] == -torch.inf).all() and (found[3, :, 0] > -torch.inf).all()


def test_numbers_that_lie_apart_are_read(device: str) -> None:
    """As a model gives them: starts and ends side by side, in 16 bits; and what is given stays as it is."""
    draw = torch.Generator().manual_seed(0)
    both = torch.randn(2, 31, 2, generator=draw).to(device, torch.bfloat16)
    before = both.clone()
    start, end = both[:, 1:, 0], both[:, 1:, 1]
    assert_same(by_kernel(start, end, 6, 5, 8, device), choose_spans(start.cpu(), end.cpu(), 6, 5))
    assert torch.equal(both, before)


@pytest.mark.filterwarnings("ignore:All-NaN")
def test_a_broken_model_has_no_spans_and_does_no_harm(device: str) -> None:
    start, end = logits(3, 20, 0.0, 0)
    start[0], end[1], start[2, 3] = torch.nan, torch.nan, torch.nan
    found = by_kernel(start, end, 5, 4, 8, device)
    assert not (found[:2, :, 0] > -torch.inf).any()
    assert (found[2, :, 1] != 3).all() and (found[2, :, 0] > -torch.inf).all()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rows", "n", "top", "max_tokens"),
    [*SHAPES, (500, 488, 20, 256), (41, 12_000, 20, 256), (3, 131_072, 20, 256), (2, 200_001, 20, 1024)],
)
@pytest.mark.parametrize("hidden", [0.0, 0.5, 0.99])
def test_a_gpu_finds_what_the_cpu_finds(rows: int, n: int, top: int, max_tokens: int, hidden: float) -> None:
    """Also again and again: threads that did not wait for each other would now and then see old numbers."""
    start, end = logits(rows, n, hidden, n)
    expected = best_spans_of_rows(start, end, top, max_tokens)
    for _ in range(5):
        assert best_spans_of_rows(start.cuda(), end.cuda(), top, max_tokens) == expected


@pytest.mark.gpu
def test_longer_spans_than_the_kernel_takes_are_found_without_it() -> None:
    start, end = logits(2, 3000, 0.3, 0)
    expected = choose_spans(start, end, 4, 2000)
    assert_same(span_table(start.cuda(), end.cuda(), 4, 2000).cpu(), expected)
