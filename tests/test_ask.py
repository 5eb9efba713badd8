"""Reading once and asking many times: what `encode` gives, whatever the pieces and whoever asks which tree."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from torch import Tensor

from tests.cases import relative_error
from vcc import Rows, SegmentTree, VccConfig, encode, flatten_tree
from vcc.core.rows import concat_rows
from vcc.encode import Step, ask, read_once
from vcc.testing import TinyHost, random_rows, tiny_host

CONFIG = VccConfig(scales=(8, 2, 1), budget=(2, 3), window=8, window_layers=1, vip_window="own", explore=0.0)


def contexts(batch: int = 3, n: int = 45) -> Rows:
    """The second is shorter than the others."""
    rows = random_rows(batch, n)
    counts = rows.counts.clone()
    counts[1:2, n - 17 :] = 0
    return replace(rows, counts=counts)


def questions(batch: int = 3) -> Rows:
    """The last has one VIP less."""
    rows = random_rows(batch, 4, seed=1)
    counts = rows.counts.clone()
    counts[-1, 3:] = 0
    return Rows(rows.hidden, counts, rows.positions - 4)


def tensors(tree: SegmentTree) -> tuple[Tensor, ...]:
    return (tree.means, *tree.differences, *tree.counts, *tree.positions)


def difference(actual: SegmentTree, expected: SegmentTree) -> float:
    return max(relative_error(a, b) for a, b in zip(tensors(actual), tensors(expected), strict=True))


def element(rows: Rows, index: int) -> Rows:
    return Rows(rows.hidden[[index]], rows.counts[[index]], rows.positions[[index]])


def stretches(rows: Rows, *ends: int) -> list[Rows]:
    bounds = zip((0, *ends), (*ends, len(rows)), strict=True)
    return [Rows(rows.hidden[:, a:b], rows.counts[:, a:b], rows.positions[:, a:b]) for a, b in bounds]


@pytest.mark.parametrize("grad", [True, False])
def test_reading_once_and_asking_is_encoding_vips_and_context_together(grad: bool) -> None:
    host, vips, context = tiny_host(distance=0.05), questions(), contexts()
    together = concat_rows(vips, context)
    vip_mask = (torch.arange(len(together)) < len(vips)).expand_as(together.counts)
    with torch.set_grad_enabled(grad):
        expected = encode(host, together, vip_mask, CONFIG).hidden
        after, tree = ask(host, vips, read_once(host, [context], CONFIG), CONFIG)
    found, real = torch.cat([after.hidden, flatten_tree(tree).hidden], 1), together.counts > 0
    assert relative_error(found[real], expected[real]) < 1e-12


@pytest.mark.parametrize("ends", [(8,), (16, 24), (40,), (8, 16, 24, 32, 40)])
def test_a_context_read_in_pieces_is_the_context_read_whole(ends: tuple[int, ...]) -> None:
    host = tiny_host(distance=0.05)
    whole = read_once(host, [contexts()], CONFIG)
    pieces = read_once(host, iter(stretches(contexts(), *ends)), CONFIG)
    assert difference(pieces, whole) < 1e-13 and pieces.length == whole.length == 45


def test_a_piece_that_ends_inside_a_window_is_refused() -> None:
    host = tiny_host()
    with pytest.raises(ValueError, match=r"a piece of 12 rows, not the last, must be a multiple of config.window=8"):
        read_once(host, stretches(contexts(), 12), CONFIG)
    with pytest.raises(ValueError, match=r"a row stands for 0 tokens \(padding\) or more"):
        read_once(host, [replace(contexts(), counts=-contexts().counts)], CONFIG)


def test_some_windows_at_a_time_are_all_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Watched(TinyHost):
        def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
            seen.append(len(rows.hidden))
            return super().layer(index, rows, consecutive)

    torch.manual_seed(0)
    host = Watched().double().eval()
    monkeypatch.setattr(import_module("vcc.encode"), "WINDOWED_AT_ONCE", 40)
    expected = read_once(host, [contexts()], CONFIG)
    assert seen == [16]  # with gradients, all windows with a token at once
    with torch.no_grad():
        assert difference(read_once(host, [contexts()], CONFIG), expected) < 1e-13
    assert seen == [16, 5, 5, 5, 1]


OWNER = [2, 0, 0, 1, 2]


def test_who_asks_which_tree_gives_what_each_gives_alone() -> None:
    host, vips = tiny_host(distance=0.05), questions(5)
    tree = read_once(host, [contexts()], CONFIG)
    before = [tensor.clone() for tensor in tensors(tree)]
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            after, trees = ask(host, vips, tree, CONFIG, owner=torch.tensor(OWNER))
            for i, owner in enumerate(OWNER):
                own = read_once(host, [element(contexts(), owner)], CONFIG)
                alone, alone_tree = ask(host, element(vips, i), own, CONFIG)
                real = vips.counts[i] > 0
                assert relative_error(after.hidden[i][real], alone.hidden[0][real]) < 1e-12
                real = contexts().counts[owner] > 0
                found, expected = flatten_tree(trees).hidden[i], flatten_tree(alone_tree).hidden[0]
                assert relative_error(found[real], expected[real]) < 1e-12
        assert all(map(torch.equal, tensors(tree), before)), "the tree that was given changed"


def asked(host: TinyHost, tree: SegmentTree, owner: Tensor | None, batch: int) -> Callable[[], Tensor]:
    return lambda: flatten_tree(ask(host, questions(batch), tree, CONFIG, owner=owner)[1]).hidden.square().sum()


def test_gradients_reach_the_trees_and_add_up_over_those_who_asked() -> None:
    host = tiny_host()
    tree = read_once(host, [contexts()], CONFIG)
    leaves = [part.detach().requires_grad_() for part in (tree.means, *tree.differences)]
    tree = replace(tree, means=leaves[0], differences=tuple(leaves[1:]))
    both = torch.autograd.grad(asked(host, tree, torch.tensor([2, 2]), 2)(), leaves)
    one = torch.autograd.grad(asked(host, tree, torch.tensor([2]), 1)(), leaves)
    for gradient, single in zip(both, one, strict=True):
        assert single[2].abs().max() > 1e-6 and not single[:2].any()
        assert gradient[2].norm() > 1.5 * single[2].norm() and not gradient[:2].any()


def test_one_tree_serves_all_and_one_each_serves_each() -> None:
    host, vips = tiny_host(), questions()
    trees = read_once(host, [contexts()], CONFIG)
    one = read_once(host, [element(contexts(), 0)], CONFIG)
    for tree, owner in ((trees, [0, 1, 2]), (one, [0, 0, 0])):
        expected = ask(host, vips, tree, CONFIG, owner=torch.tensor(owner))[1]
        assert difference(ask(host, vips, tree, CONFIG)[1], expected) == 0
    with pytest.raises(ValueError, match="a tree of 3 sequences cannot serve a batch of 2"):
        ask(host, questions(2), trees, CONFIG)
    with pytest.raises(ValueError, match=r"owner has shape \(2,\); it must be \(3,\)"):
        ask(host, vips, trees, CONFIG, owner=torch.tensor([0, 1]))


def test_whoever_watches_sees_the_context_after_each_compressed_layer() -> None:
    host, steps = tiny_host(layers=3), []

    def watch(step: Step) -> None:
        assert step.cut is not None and step.tree is not None
        assert step.rows == 4 + (6 - 2) + (8 - 3) + 6 and step.rows == 4 + step.cut.rows
        steps.append((step.layer, step.whole().hidden.clone()))

    with torch.no_grad():
        _, tree = ask(host, questions(), read_once(host, [contexts()], CONFIG), CONFIG, watch)
    assert [layer for layer, _ in steps] == [1, 2]
    assert torch.equal(steps[-1][1], flatten_tree(tree).hidden) and not torch.equal(steps[0][1], steps[1][1])
