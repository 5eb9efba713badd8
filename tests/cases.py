"""Random inputs for the property tests: any length, padding anywhere, any VIPs, any scales, any budget."""

from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from vcc import Rows, VccConfig
from vcc.testing import random_rows

SCALES = [(1,), (2, 1), (4, 1), (16, 1), (4, 2, 1), (16, 4, 1), (6, 2, 1), (32, 2, 1), (12, 6, 3, 1), (64, 16, 4, 1)]


@dataclass(frozen=True)
class Case:
    rows: Rows  # hidden (B, n, 8) float64; counts 1, or 0 for padding
    vip_mask: Tensor  # (B, n)
    config: VccConfig
    seed: int

    def score(self, nodes: Rows) -> Tensor:
        """(B, nodes) numbers that depend on the node alone, many of them equal."""
        return (nodes.positions * 7.3 + self.seed).sin().mul(4).round()


def binary(n: int) -> tuple[int, ...]:
    """The paper's (n, ..., 4, 2, 1)."""
    return tuple(2**k for k in reversed(range(max(1, n - 1).bit_length() + 1)))


@st.composite
def cases(draw: st.DrawFn, longest: int = 40) -> Case:
    n = draw(st.one_of(st.integers(0, 3), st.integers(4, longest)))
    batch = draw(st.integers(1, 3))
    seed = draw(st.integers(0, 10_000))
    scales = draw(st.one_of(st.sampled_from(SCALES), st.just(binary(n))))
    budget = tuple(draw(st.sampled_from([0, 1, 2, 3, 5, 1000])) for _ in scales[1:])
    generator = torch.Generator().manual_seed(seed)
    counts = torch.ones(batch, n, dtype=torch.float64)
    vip_mask = torch.zeros(batch, n, dtype=torch.int64)
    place = torch.arange(n)
    for element in range(batch):
        real = draw(st.integers(0, n))
        padding = draw(st.sampled_from(["none", "left", "right", "anywhere", "all"]))
        if padding == "left":
            counts[element] = (place >= n - real).double()
        elif padding == "right":
            counts[element] = (place < real).double()
        elif padding == "anywhere":
            counts[element] = (torch.rand(n, generator=generator) < 0.6).double()
        elif padding == "all":
            counts[element] = 0
        vips = draw(st.sampled_from(["none", "first", "some", "all"]))  # padding may be marked too; it is no VIP
        if vips == "first":
            vip_mask[element, :2] = 1
        elif vips == "some":
            vip_mask[element] = torch.rand(n, generator=generator) < 0.3
        elif vips == "all":
            vip_mask[element] = 1
    config = VccConfig(
        scales=scales,
        budget=budget,
        window=draw(st.integers(1, 12)),
        window_layers=draw(st.integers(0, 2)),
        vip_window=draw(st.sampled_from(["inline", "own", "every"])),
        mean_norm=draw(st.booleans()),
        mass=draw(st.sampled_from([None, 0.5, 1.0])) if len(scales) == 2 else None,
        score=draw(st.sampled_from(["attention", "attention", "similarity"])),
        max_vips=draw(st.sampled_from([None, None, longest])),
    )
    rows = replace(random_rows(batch, n, seed=seed), counts=counts)
    return Case(rows, vip_mask, config, seed)


def alone(rows: Rows, vip_mask: Tensor, element: int) -> tuple[Rows, Tensor]:
    """One batch element as a batch of its own, without its padding."""
    real = rows.counts[element] > 0
    hidden, counts, positions, vips = (
        tensor[element][real][None] for tensor in (rows.hidden, rows.counts, rows.positions, vip_mask)
    )
    return Rows(hidden, counts, positions), vips


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest number expected."""
    if actual.shape != expected.shape:
        raise AssertionError(f"shapes {tuple(actual.shape)} and {tuple(expected.shape)} differ")
    if not expected.numel():
        return 0.0
    actual, expected = actual.detach().double(), expected.detach().double()
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-300))
