"""A tree in 6 bits: near the exact one, the same after it was stored, and checked against its length."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vcc.core.rows import Rows
from vcc.core.tree import build_tree, flatten_tree
from vcc.documents.packed_tree import PackedTree
from vcc.qa.six_bits import LEVELS, STEPS, pack, unpack

SCALES = (8, 4, 1)


def tokens(n: int, width: int = 6, first: int = 0) -> Rows:
    torch.manual_seed(n)
    places = torch.arange(first, first + n)[None]
    return Rows(torch.randn(1, n, width), torch.ones(1, n), places.float())


@given(st.integers(1, 9), st.integers(1, 40), st.floats(1e-6, 1e6))
def test_numbers_are_off_by_at_most_half_a_step_and_packing_again_changes_nothing(
    width: int, n: int, size: float
) -> None:
    torch.manual_seed(width * n)
    vectors = torch.randn(n, width) * size
    vectors[0] = 0.0
    values, steps = pack(vectors)
    back = unpack(values, steps, width)
    assert (back - vectors).abs().amax(1).le(steps * 0.501).all()
    assert torch.equal(steps, vectors.abs().amax(1) / LEVELS)
    again, _ = pack(back)
    assert torch.equal(again, values)
    assert values.numel() == n * 3 * -(-width // 4) and values.dtype == torch.uint8


def test_a_tree_in_pieces_is_the_tree_of_the_whole() -> None:
    whole = tokens(27)
    pieces = [
        Rows(*(part[:, a:b] for part in (whole.hidden, whole.counts, whole.positions))) for a, b in ((0, 16), (16, 27))
    ]
    exact = build_tree(whole, SCALES)
    found = PackedTree.of(build_tree(piece, SCALES) for piece in pieces).tree()
    assert (found.scales, found.length) == (exact.scales, exact.length)
    for name in ("counts", "positions"):
        for mine, its in zip(getattr(found, name), getattr(exact, name), strict=True):
            assert torch.equal(mine, its), name
    states = flatten_tree(exact).hidden
    off = (flatten_tree(found).hidden - states).norm() / states.norm()
    assert 0.001 < off < 0.1


def test_parts_that_do_not_fit_raise() -> None:
    good = PackedTree.of([build_tree(tokens(27), SCALES)])
    shorter = dict(good.parts) | {"means": good.parts["means"][1:]}
    fewer = {name: part for name, part in good.parts.items() if name != "means" + STEPS}
    for change in (
        {"length": 40},
        {"length": 3},
        {"width": 9},
        {"scales": (8, 1)},
        {"parts": shorter},
        {"parts": fewer},
    ):
        with pytest.raises(ValueError):
            replace(good, **change)
