"""Attention without a mask against the reference, and the patterns it relies on against the counts they speak of."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from torch import Tensor

from tests.cases import Case, cases
from vcc import encode
from vcc.attention import sdpa, unmasked
from vcc.attention.attend import attend
from vcc.attention.scoring import Scoring
from vcc.attention.unmasked import attend_few_masked, attend_groups
from vcc.core.rows import Pattern, Rows
from vcc.testing import TinyHost

PATTERN = Pattern(((5, 1), (20, 4), (12, 1)), 4)


def counts_of(pattern: Pattern, ends: list[list[tuple[int, int]]]) -> Tensor:
    """For each batch element and part: how many rows are full, and what the row after them stands for."""

    def counts(rows: int, tokens: int, full: int, fewer: int) -> list[int]:
        return ([tokens] * full + [fewer] + [0] * rows)[:rows]

    elements = ([counts(*part, *end) for part, end in zip(pattern.groups, each, strict=True)] for each in ends)
    return torch.tensor([sum(parts, []) for parts in elements])


ENDS = [
    [(5, 0), (20, 0), (12, 0)],  # all full
    [(3, 0), (14, 3), (10, 0)],  # padding everywhere, and a node of three tokens
    [(1, 0), (0, 1), (0, 0)],  # hardly anything
    [(0, 0), (0, 0), (0, 0)],  # padding alone
]


def heads(shape: tuple[int, ...], dtype: torch.dtype, shift: float = 0.0, device: str = "cpu") -> list[Tensor]:
    """q, k, v; with a shift, all scores of a query move together, far from zero."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape, dtype=torch.float64) for _ in range(3))
    return [part.to(device, dtype).requires_grad_() for part in (q + shift, k - shift, v)]


def with_gradients(run: Callable[..., Tensor], inputs: list[Tensor], seen: Tensor) -> list[Tensor]:
    """Output and gradients where something is seen; `seen` (B, r) marks real rows."""
    out = run(*inputs)
    loss = (out * torch.linspace(-1, 2, out.shape[2]).to(out)[:, None] * seen[:, None, :, None]).sum()
    return [out * seen[:, None, :, None], *torch.autograd.grad(loss, inputs)]


def largest_error(ours: list[Tensor], theirs: list[Tensor]) -> float:
    return max(((a.double() - b).norm() / b.norm()).item() for a, b in zip(ours, theirs, strict=True))


def reference(counts: Tensor, scale: float) -> Callable[..., Tensor]:
    rows = Rows(counts[..., None].double(), counts, counts)
    return lambda q, k, v: attend(q, k, v, rows, Scoring(scale), "reference")


@pytest.mark.parametrize(
    ("dtype", "shift", "bound"),
    [
        (torch.float64, 0.0, 1e-12),
        (torch.float64, 4.0, 1e-12),
        (torch.float32, 0.0, 1e-5),
        (torch.float32, 4.0, 1e-5),
        (torch.bfloat16, 0.0, 1e-2),
    ],
)
def test_parts_equal_the_reference(dtype, shift, bound):
    """Of the shifted ones every score is near -100: what padding adds must be small beside that, not beside 1."""
    counts, scale = counts_of(PATTERN, ENDS), 0.7
    inputs = heads((4, 2, 37, 8), dtype, shift)
    exact = [each.detach().double().requires_grad_() for each in inputs]
    ours = with_gradients(lambda q, k, v: attend_groups(q, k, v, counts, PATTERN, scale), inputs, counts > 0)
    theirs = with_gradients(reference(counts, scale), exact, counts > 0)
    assert all(each.isfinite().all() for each in ours)
    assert largest_error(ours, theirs) < bound


@pytest.mark.parametrize("parts", [((0, 4), (9, 1)), ((9, 4), (0, 1)), ((9, 16),), ((2, 1), (4, 8), (3, 2))])
def test_any_parts_equal_the_reference(parts):
    """All opened, nothing opened, one part, three scales."""
    counts = torch.cat([torch.tensor([tokens] * (rows - 2) + [max(tokens - 1, 1), 0][:rows]) for rows, tokens in parts])
    inputs = heads((1, 2, 9, 8), torch.float64)
    ours = with_gradients(lambda q, k, v: attend_groups(q, k, v, counts[None], Pattern(parts, 1), 0.7), inputs, counts[None] > 0)  # fmt: skip # noqa: E501
    assert largest_error(ours, with_gradients(reference(counts[None], 0.7), inputs, counts[None] > 0)) < 1e-12


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("uneven", [3, 7])
def test_few_masked_equals_the_reference(dtype, bound, uneven):
    counts = torch.ones(9, 11)
    counts[2, 7:] = counts[5, 1:] = counts[6:] = 0
    counts[8, :10] = 1
    inputs = heads((9, 2, 11, 8), dtype)
    exact = [each.detach().double().requires_grad_() for each in inputs]
    ours = with_gradients(lambda q, k, v: attend_few_masked(q, k, v, counts, uneven, 0.7), inputs, counts > 0)
    theirs = with_gradients(reference(counts, 0.7), exact, counts > 0)
    assert largest_error(ours, theirs) < bound


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("way", ["parts", "few masked"])
def test_cudnn_gives_the_same(dtype, way):
    if way == "parts":
        counts, scale = counts_of(PATTERN, ENDS).cuda(), 0.2
        run = lambda q, k, v: attend_groups(q, k, v, counts, PATTERN, scale)  # noqa: E731
    else:
        counts, scale = torch.ones(64, 128, device="cuda"), 0.2
        counts[5, 100:] = counts[40, 1:] = counts[60:] = 0
        run = lambda q, k, v: attend_few_masked(q, k, v, counts, 4, scale)  # noqa: E731
    inputs = heads((*counts.shape[:1], 2, counts.shape[1], 64), dtype, device="cuda")
    exact = [each.detach().double().requires_grad_() for each in inputs]
    ours, theirs = with_gradients(run, inputs, counts > 0), with_gradients(reference(counts, scale), exact, counts > 0)
    assert largest_error(ours, theirs) < 2e-2


# ------------------------------------------------------------------------------------------------------------ patterns


class Watched(TinyHost):
    """Keeps what its layers were given."""

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        self.seen = [*getattr(self, "seen", []), rows]
        return super().layer(index, rows, consecutive)


@given(cases())
def test_what_layers_are_given_is_of_the_pattern_it_says(case: Case) -> None:
    torch.manual_seed(0)
    host = Watched().double().eval()
    config = replace(case.config, mass=None)  # with it, elements differ in ways that no pattern describes
    encode(host, replace(case.rows, counts=case.rows.counts > 0), case.vip_mask, config)
    for rows in host.seen:
        pattern = rows.pattern
        assert pattern is not None and sum(number for number, _ in pattern.groups) == len(rows)
        uneven = torch.zeros(rows.counts.shape[0], dtype=torch.bool)
        for counts, (_, tokens) in zip(
            rows.counts.split([n for n, _ in pattern.groups], 1), pattern.groups, strict=True
        ):
            full = counts == tokens
            assert (full[:, 1:] <= full[:, :-1]).all(), "full rows come first"
            assert (((counts > 0) & ~full).sum(1) <= 1).all() and (counts <= tokens).all()
            assert ((counts[:, 1:] > 0) <= full[:, :-1]).all(), "nothing follows a row of fewer tokens but padding"
            uneven |= (counts > 0).any(1) & ~full.all(1)
        assert uneven.sum() <= pattern.uneven


@given(cases())
def test_of_other_counts_nothing_is_said(case: Case) -> None:
    torch.manual_seed(0)
    host = Watched().double().eval()
    encode(host, case.rows, case.vip_mask, case.config)
    assert all(rows.pattern is None for rows in host.seen)


def test_attend_uses_no_mask_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU it never does; here it is told that it might."""
    monkeypatch.setattr(sdpa, "cudnn_masks", lambda q: True)
    used: list[str] = []
    for way in ("attend_few_masked", "attend_groups"):
        original = getattr(unmasked, way)
        monkeypatch.setattr(
            unmasked, way, lambda *args, way=way, original=original: (used.append(way), original(*args))[1]
        )

    def tried(batch: int, r: int, pattern: Pattern | None, dropout: float = 0.0) -> list[str]:
        used.clear()
        rows = Rows(torch.zeros(batch, r, 1), torch.ones(batch, r), torch.zeros(batch, r), pattern)
        attend(*torch.randn(3, batch, 1, r, 8), rows, Scoring(dropout=dropout), "sdpa")
        return list(used)

    assert tried(64, 8, Pattern(((8, 1),), 4)) == ["attend_few_masked"]
    assert tried(1, 4096, Pattern(((4096, 1),), 1)) == ["attend_groups"]
    assert tried(64, 8, Pattern(((8, 1),), 5)) == tried(63, 8, Pattern(((8, 1),), 1)) == []
    assert tried(1, 4095, Pattern(((4095, 1),), 1)) == tried(1, 4096, None) == []
    assert tried(64, 8, Pattern(((8, 1),), 4), dropout=0.1) == []
