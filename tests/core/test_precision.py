"""A bf16 model updates its tree for 24 layers; the tree must not forget the small updates."""

from dataclasses import replace

import torch
from torch import Tensor

from tests.cases import relative_error
from vcc import Cut, SegmentTree, build_tree, choose_cut, flatten_tree
from vcc.core.cut import add_to_cut
from vcc.testing import random_rows

LAYERS, N, WIDTH, SCALES, BUDGET = 24, 131_072, 8, (1024, 32, 1), (8, 24)


def story() -> list[tuple[Cut, Tensor]]:
    """Cuts and bf16 updates, each small beside the hidden states, as layers make them."""
    generator = torch.Generator().manual_seed(0)
    tree = build_tree(random_rows(1, N, WIDTH, dtype=torch.bfloat16), SCALES)
    score = lambda nodes: torch.rand(nodes.counts.shape, generator=generator)
    steps = []
    for _ in range(LAYERS):
        cut = choose_cut(tree, score, BUDGET)
        r = sum(kept.shape[1] for kept in cut.kept)
        steps.append((cut, (torch.randn(1, r, WIDTH, generator=generator) * 0.05 + 0.05).bfloat16()))
    return steps


def decompressed(cut: Cut, update: Tensor) -> Tensor:
    """S^+ update in float64: the update of each of the n tokens."""
    where, nodes, parts = [], torch.arange(N // SCALES[0]), update[0].double().split([k.shape[1] for k in cut.kept])
    for depth, (s, part) in enumerate(zip(SCALES, parts, strict=True)):
        kept = nodes[cut.kept[depth][0]]
        where.append(((kept[:, None] * s + torch.arange(s)).flatten(), part.repeat_interleave(s, 0)))
        if depth + 1 < len(SCALES):
            fan_out = s // SCALES[depth + 1]
            nodes = (nodes[cut.opened[depth][0]][:, None] * fan_out + torch.arange(fan_out)).flatten()
    whole = torch.full((N, WIDTH), float("nan"), dtype=torch.float64)
    for tokens, values in where:
        whole[tokens] = values
    return whole


def told(tree: SegmentTree, steps: list[tuple[Cut, Tensor]]) -> Tensor:
    with torch.no_grad():
        for cut, update in steps:
            tree = add_to_cut(tree, cut, update, in_place=True)
    return flatten_tree(tree).hidden


def test_24_layers_of_bf16_updates_at_131072_tokens_stay_within_1e5_of_wide_arithmetic() -> None:
    rows, steps = random_rows(1, N, WIDTH, dtype=torch.bfloat16), story()
    expected, single = rows.hidden.double(), rows.hidden.float()
    for cut, update in steps:
        moved = decompressed(cut, update)
        expected, single = expected + moved, single + moved.float()
    result = told(build_tree(rows, SCALES), steps)
    assert result.dtype == torch.float32
    for reference in (expected, single):
        assert relative_error(result, reference) < 1e-5
        assert (result - reference).norm() / reference.norm() < 1e-5

    tree = build_tree(rows, SCALES)
    half = replace(
        tree,
        means=tree.means.bfloat16(),
        differences=tuple(d.bfloat16() for d in tree.differences),
        counts=tuple(c.bfloat16() for c in tree.counts),
    )
    forgetful = told(half, steps).double()
    assert (forgetful - expected).norm() / expected.norm() > 1e-3  # why the tree is not kept in the model's own type
