"""Nothing is read or written but what the cut visits: unvisited nodes are poisoned, and big tensors forbidden."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.cases import binary
from vcc import Cut, Rows, SegmentTree, VccConfig, build_tree, choose_cut, read_cut
from vcc.core.cut import add_to_cut
from vcc.core.state import Compressed
from vcc.encode import layer_step
from vcc.testing import nodes_of_cut, random_rows

NAN = float("nan")
SETTINGS = [((4, 1), (3,), 63), ((16, 4, 1), (2, 3), 250), (binary(128), (1, 2, 3, 4, 4, 4, 4), 128)]


def visited_nodes(tree: SegmentTree, cut: Cut) -> list[Tensor]:
    """(B, m_i) per scale: nodes in the cut, and nodes opened on the way."""
    marks = [torch.zeros_like(counts, dtype=torch.bool) for counts in tree.counts]
    for element in range(tree.means.shape[0]):
        rows, inner = nodes_of_cut(tree, cut, element)
        for node in rows + inner:
            marks[node.depth][element, node.x] = True
    return marks


def poisoned(tree: SegmentTree, cut: Cut) -> SegmentTree:
    """NaN in everything stored at a node that was not visited."""
    marks = visited_nodes(tree, cut)
    return replace(
        tree,
        differences=tuple(
            d.masked_fill(~mark[..., None], NAN) for d, mark in zip(tree.differences, marks[1:], strict=True)
        ),
        counts=tuple(c.masked_fill(~mark, NAN) for c, mark in zip(tree.counts, marks, strict=True)),
        positions=tuple(p.masked_fill(~mark, NAN) for p, mark in zip(tree.positions, marks, strict=True)),
    )


@pytest.mark.parametrize(("scales", "budget", "n"), SETTINGS)
def test_choosing_reading_and_writing_never_look_at_unvisited_nodes(scales, budget, n: int) -> None:
    tree = build_tree(random_rows(2, n), scales)
    score = lambda nodes: nodes.hidden.sum(2)
    cut = choose_cut(tree, score, budget)
    poison = poisoned(tree, cut)
    assert any(counts.isnan().any() for counts in poison.counts)  # there is something not to look at

    again = choose_cut(poison, score, budget)
    for name in ("opened", "kept", "opened_nodes"):
        assert all(map(torch.equal, getattr(again, name), getattr(cut, name)))
    clean, read = read_cut(tree, cut), read_cut(poison, cut)
    assert torch.equal(clean.hidden, read.hidden)
    assert torch.equal(clean.counts, read.counts) and torch.equal(clean.positions, read.positions)

    update = random_rows(2, len(read), seed=1).hidden
    expected, written = add_to_cut(tree, cut, update), add_to_cut(poison, cut, update)
    assert torch.equal(written.means, expected.means)
    for d, e, mark in zip(written.differences, expected.differences, visited_nodes(tree, cut)[1:], strict=True):
        assert torch.equal(d[mark], e[mark])
        assert d[~mark].isnan().all()  # and nothing was written there either


class Watch(TorchDispatchMode):
    """Notes the size of every tensor that an operation makes, other than those that lie in memory known before."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        self.known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in self.known:
                self.largest = max(self.largest, tensor.numel())
        return result


class Plain:
    """A host that costs nothing, so that only the algorithm's own tensors are seen."""

    num_layers, training = 1, False

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        return rows.hidden * 1.5

    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        return nodes.hidden.sum(2)


@pytest.mark.parametrize("scales", [(256, 1), (256, 16, 1), binary(2**14)])
def test_a_layer_makes_no_tensor_of_the_length_of_the_sequence(scales: tuple[int, ...]) -> None:
    n = 2**14
    vips, rows = random_rows(2, 2), random_rows(2, n)
    rows = Rows(rows.hidden.mT.contiguous().mT, rows.counts[:1].expand(2, n), rows.positions[:1].expand(2, n))
    tree = build_tree(rows, scales)  # from tensors that are not laid out in a row, too
    config = VccConfig(scales=scales, budget=(1,) * (len(scales) - 1), window_layers=0)
    with torch.no_grad(), Watch(tree.means, *tree.differences, *tree.counts, *tree.positions) as watch:
        layer_step(Plain(), 0, Compressed(vips, tree), config)
    assert 0 < watch.largest < n  # one number per token would be n already; the hidden states are 8 n
