"""A bf16 model updates its tree for 24 layers; the tree must not forget the small updates."""

from dataclasses import replace

import torch
from torch import Tensor

from tests.cases import relative_error
from vcc import Cut, Rows, SegmentTree, VccConfig, build_tree, choose_cut, encode, flatten_tree
from vcc.core.cut import add_to_cut
from vcc.encode import Step
from vcc.testing import TinyHost, random_rows

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


def test_the_tree_of_a_bf16_model_holds_the_sum_of_its_updates() -> None:
    """24 layers: what each bf16 layer added, summed in float64, is what the tree holds."""
    torch.manual_seed(0)
    updates: list[Tensor] = []
    trees, cuts = [], []

    class Recorder(TinyHost):
        def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
            assert rows.hidden.dtype == torch.bfloat16
            after = super().layer(index, rows)
            updates.append(after.double()[:, 4:] - rows.hidden.double()[:, 4:])
            return after

    def watch(step: Step) -> None:
        cuts.append(step.cut)
        trees.append(step.tree)

    n, scales = 4096, (256, 16, 1)
    rows = random_rows(1, n, dtype=torch.bfloat16)
    rows = Rows(rows.hidden, rows.counts.float(), torch.arange(n).float()[None])
    vip_mask = (torch.arange(n) < 4).long()[None]
    config = VccConfig(scales=scales, budget=(4, 4), window_layers=0)
    with torch.no_grad():
        result = encode(Recorder(layers=24).bfloat16().eval(), rows, vip_mask, config, watch)
    assert result.hidden.dtype == torch.bfloat16 and len(updates) == 24
    context = Rows(rows.hidden[:, 4:].double(), rows.counts[:, 4:], rows.positions[:, 4:])
    wide = build_tree(context, scales)
    for cut, update in zip(cuts, updates, strict=True):
        wide = add_to_cut(wide, cut, update)
    assert trees[-1].means.dtype == torch.float32
    assert relative_error(flatten_tree(trees[-1]).hidden, flatten_tree(wide).hidden) < 1e-5
