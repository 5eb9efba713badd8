"""The kernels of one step give what plain PyTorch gives."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.decoders.models import SMALL
from tests.deep import deep_but
from vcc.decoders.config import DecoderConfig
from vcc.decoders.interface import attend_layer
from vcc.decoders.layer import TreeLayer
from vcc.decoders.use_kernels import step_by_kernel, why_no_kernel

GUARD = 512  # numbers on either side of a storage
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2}


def filled(settings: DecoderConfig, n: int, heads: int, width: int, dtype: torch.dtype, device: str) -> TreeLayer:
    draw = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(2, heads, n, width, generator=draw, dtype=torch.float64) for _ in range(2))
    real = torch.ones(2, n, dtype=torch.bool)
    real[1, : n // 3] = False
    return TreeLayer.filled(settings, keys.to(device, dtype), values.to(device, dtype), real.to(device))


@pytest.mark.parametrize(
    ("n", "heads", "group", "width", "leaf", "wanted", "dtype"),
    [
        (150, 2, 3, 16, 4, 3, torch.float64),
        (150, 2, 1, 32, 8, 0, torch.float32),
        (150, 1, 5, 16, 4, 1000, torch.float64),
        (700, 1, 2, 16, 4, 9, torch.float64),  # more nodes than one stretch has
        (150, 2, 4, 64, 16, 2, torch.bfloat16),
        (9, 2, 3, 16, 4, 3, torch.float64),  # no tree yet
    ],
)
def test_kernels_equal_the_reference(
    device: str,
    n: int,
    heads: int,
    group: int,
    width: int,
    leaf: int,
    wanted: int,
    dtype: torch.dtype,
) -> None:
    if device == "cuda" and dtype == torch.float64:
        dtype = torch.float32
    settings = DecoderConfig(**SMALL | {"scales": (leaf, 1), "fresh": 16, "piece": 64}, budget=wanted)
    layer = filled(settings, n, heads, width, dtype, device)
    draw = torch.Generator().manual_seed(1)
    query = torch.randn(2, heads * group, 1, width, generator=draw, dtype=torch.float64).to(device, dtype)
    expected = attend_layer(layer, query, 1, width**-0.5, False)
    found, rows = step_by_kernel(layer, query, width**-0.5)
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=TOLERANCE[dtype])
    assert float(rows.double().mean()) == float(layer.tally.read)


@pytest.mark.parametrize(
    ("n", "scales", "budget", "dtype"),
    [
        (700, (16, 4, 1), (5, 3), torch.float64),
        (700, (16, 4, 1), (1000, 9), torch.float64),
        (700, (16, 4, 1), (1000, 1000), torch.float64),  # everything is open
        (700, (16, 4, 1), (3, 0), torch.float64),
        (700, (16, 4, 1), (0, 5), torch.float64),
        (700, (16, 8, 2, 1), (9, 11, 7), torch.float64),
        (700, (64, 16, 1), (4, 3), torch.float32),
        (9, (16, 4, 1), (2, 2), torch.float64),  # no tree yet
        pytest.param(  # more than one stretch of children
            2300, (8, 4, 1), (150, 200), torch.float32, marks=pytest.mark.slow
        ),
    ],
)
def test_kernels_equal_the_reference_with_more_scales(
    device: str, n: int, scales: tuple[int, ...], budget: tuple[int, ...], dtype: torch.dtype
) -> None:
    if device == "cuda" and dtype == torch.float64:
        dtype = torch.float32
    settings = DecoderConfig(**SMALL | {"scales": scales, "fresh": 64, "piece": 64}, budget=budget)
    layer = filled(settings, n, 2, 16, dtype, device)
    draw = torch.Generator().manual_seed(1)
    query = torch.randn(2, 6, 1, 16, generator=draw, dtype=torch.float64).to(device, dtype)
    expected = attend_layer(layer, query, 1, 0.25, False)
    found, rows = step_by_kernel(layer, query, 0.25)
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=TOLERANCE[dtype])
    assert float(rows.double().mean()) == pytest.approx(float(layer.tally.read), abs=1e-9)


def test_shared_trees_are_read_through_their_owners(device: str) -> None:
    settings = DecoderConfig(**SMALL, budget=3)
    layer = filled(settings, 150, 2, 16, torch.float32, device)
    layer.reorder_cache(torch.tensor([1, 0, 1], device=device))
    assert layer.owner is not None
    query = torch.randn(3, 4, 1, 16, generator=torch.Generator().manual_seed(1)).to(device)
    found, _ = step_by_kernel(layer, query, 0.25)
    torch.testing.assert_close(found, attend_layer(layer, query, 1, 0.25, False), rtol=0, atol=2e-5)


def test_beams_are_taken_as_beam_search_gives_them(device: str) -> None:
    """A column of a table of int32, whose neighbours in memory are other steps' beams."""
    table = torch.zeros(3, 9, dtype=torch.int32, device=device)
    table[:, 4] = 1
    layer = filled(DecoderConfig(**SMALL, budget=3), 150, 2, 16, torch.float32, device)
    layer.reorder_cache(table[:, 4])
    query = torch.randn(3, 4, 1, 16, generator=torch.Generator().manual_seed(1)).to(device)
    expected = attend_layer(layer, query, 1, 0.25, False)
    found, _ = step_by_kernel(layer, query, 0.25)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)
    layer.owner = table[:, 4]  # the kernels alone
    torch.testing.assert_close(step_by_kernel(layer, query, 0.25)[0], expected, rtol=0, atol=2e-5)


class Guarded:
    """Memory with a guard on both sides: what is read beyond its ends shows as NaN or as a huge number."""

    def __init__(self) -> None:
        self.guards: list[Tensor] = []

    def empty(self, *shape: int, dtype: torch.dtype, device: Any) -> Tensor:
        size = math.prod(shape)
        whole = torch.full((size + 2 * GUARD,), beyond(dtype), dtype=dtype, device=device)
        self.guards += [whole[:GUARD], whole[GUARD + size :]]
        return whole[GUARD : GUARD + size].view(shape)

    def copy(self, tensor: Tensor) -> Tensor:
        return self.empty(*tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor)

    def check(self) -> None:
        for guard in self.guards:
            torch.testing.assert_close(guard, torch.full_like(guard, beyond(guard.dtype)), equal_nan=True)


OWNERS = ("one tree", "own trees", "int32", "int64")


def beyond(dtype: torch.dtype) -> float:
    return math.nan if dtype.is_floating_point else 1 if dtype == torch.bool else 77


@pytest.mark.parametrize(
    ("owners", "n", "scales", "budget"),
    deep_but(
        [(owners, n, (4, 1), 3) for owners in OWNERS[:3] for n in (9, 150)] + [(OWNERS[0], 700, (16, 4, 1), (5, 3))],
        [
            (owners, *one)
            for owners in OWNERS
            for one in [(9, (4, 1), 3), (150, (4, 1), 3), (700, (4, 1), 3), (700, (16, 4, 1), (5, 3))]
        ],
    ),
)
def test_nothing_beyond_any_storage_is_read_or_written(
    device: str, owners: str, n: int, scales: tuple[int, ...], budget: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four beams of one text, before and after each has a tree of its own."""
    from vcc.decoders.kernels import step

    settings = DecoderConfig(**SMALL | {"scales": scales, "fresh": 16, "piece": 64}, budget=budget)
    draw = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(1, 2, n, 16, generator=draw).to(device) for _ in range(2))
    layer = TreeLayer.filled(settings, keys, values)
    layer.batch_repeat_interleave(4)
    if owners != "one tree":
        layer.own_tree()
        assert layer.tree.keys.shape[0] == 4
    if owners.startswith("int"):
        layer.reorder_cache(torch.tensor([3, 0, 0, 2], device=device))
        layer.owner = layer.owner.to(getattr(torch, owners))  # type: ignore[union-attr]
    query = torch.randn(4, 6, 1, 16, generator=draw).to(device)
    expected = attend_layer(layer, query, 1, 0.25, False)
    memory = Guarded()
    tree, rows = layer.tree, layer.rows.labelled()
    several = {name: tuple(map(memory.copy, getattr(tree, name))) for name in ("key_means", "value_means", "spreads")}
    tree = dataclasses.replace(tree, keys=memory.copy(tree.keys), values=memory.copy(tree.values), **several)
    owner = None if layer.owner is None else memory.copy(layer.owner)
    counts, live, grouped = (memory.copy(part) for part in (tree.node_counts, rows.live, query.view(4, 2, 3, 16)))
    monkeypatch.setattr(step.torch, "empty", memory.empty)
    inside = step.step_kernel(
        grouped,
        memory.copy(rows.keys),
        memory.copy(rows.values),
        live,
        tree,
        owner,
        settings.budgets or (),
        0.25,
        counts,
    )
    monkeypatch.undo()
    torch.testing.assert_close(inside.view(4, 1, 6, 16), expected, rtol=0, atol=2e-5)
    memory.check()


def test_counts_on_the_device_bound_the_tree_and_rows_that_are_not_live_are_not_seen(device: str) -> None:
    """As a recorded step reads: all of the storage, of which only what the tensors say is in use."""
    from vcc.decoders.kernels.step import step_kernel

    settings = DecoderConfig(**SMALL | {"piece": 64}, budget=3)
    layer = filled(settings, 150, 2, 16, torch.float32, device)
    query = torch.randn(2, 4, 1, 16, generator=torch.Generator().manual_seed(1)).to(device)
    expected = attend_layer(layer, query, 1, 0.25, False)
    rows, tree = layer.rows.labelled(), layer.tree
    assert rows.room > layer.rows.used and tree.keys.shape[2] > tree.longest
    for part in (*tree.key_means, *tree.value_means, *tree.spreads):  # what lies beyond must not matter
        part[:, :, tree.longest // 4 :] = 7.0
    rows.keys[:, :, layer.rows.used :], rows.values[:, :, layer.rows.used :] = 9.0, 9.0
    older = dataclasses.replace(tree, lengths=(16, 16))  # a graph was recorded when there were fewer nodes
    owner = torch.arange(2, device=device)
    counts = tree.node_counts.clone()
    found = step_kernel(query.view(2, 2, 2, 16), rows.keys, rows.values, rows.live, older, owner, (3,), 0.25, counts)
    torch.testing.assert_close(found.view(2, 1, 4, 16), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("owned", [False, True])
def test_leaves_in_pages_are_those_that_lie_side_by_side(device: str, owned: bool) -> None:
    """In a pool, in any order, with pages between them that belong to none."""
    from vcc.decoders.kernels.step import LeafPages, step_kernel

    layer = filled(DecoderConfig(**SMALL, budget=3), 150, 2, 16, torch.float32, device)
    if owned:
        layer.reorder_cache(torch.tensor([1, 0], device=device))
    query = torch.randn(2, 2, 2, 16, generator=torch.Generator().manual_seed(1)).to(device)
    rows, tree = layer.rows.labelled(), layer.tree
    wide = (query, rows.keys, rows.values, rows.live)
    expected = step_kernel(*wide, tree, layer.owner, (3,), 0.25)
    nodes = tree.key_means[0].shape[2]
    draw = torch.randperm(3 * 4 * nodes, generator=torch.Generator().manual_seed(2))[: 4 * nodes].to(device)
    pools = []
    for tokens in (tree.keys, tree.values):
        pool = torch.full((3 * 4 * nodes, 4, 16), torch.nan, device=device)
        pool[draw] = tokens.reshape(4 * nodes, 4, 16)
        pools.append(pool)
    pages = LeafPages(*pools, draw.view(2, 2, nodes).int())
    gone = dataclasses.replace(tree, keys=tree.keys * torch.nan, values=tree.values * torch.nan)
    found = step_kernel(*wide, gone, layer.owner, (3,), 0.25, pages=pages)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("spread", [0, 1, 4, 16])
def test_any_number_of_spreads_is_taken(device: str, spread: int) -> None:
    layer = filled(DecoderConfig(**SMALL, budget=3, spread=spread), 150, 2, 32, torch.float32, device)
    query = 2 * torch.randn(2, 4, 1, 32, generator=torch.Generator().manual_seed(1)).to(device)
    found, _ = step_by_kernel(layer, query, 0.25)
    torch.testing.assert_close(found, attend_layer(layer, query, 1, 0.25, False), rtol=0, atol=2e-5)


def test_of_equal_nodes_the_first_are_opened(device: str) -> None:
    """All keys are alike, so all shares are: which nodes are opened shows in the values only."""
    settings = DecoderConfig(**SMALL, budget=5)
    layer = filled(settings, 150, 2, 16, torch.float32, device)
    ones = torch.ones_like
    tree = layer.tree
    layer.tree = dataclasses.replace(
        tree,
        key_means=tuple(map(ones, tree.key_means)),
        spreads=tuple(map(torch.zeros_like, tree.spreads)),
    )
    query = torch.ones(2, 4, 1, 16, device=device)
    found, _ = step_by_kernel(layer, query, 0.25)
    torch.testing.assert_close(found, attend_layer(layer, query, 1, 0.25, False), rtol=0, atol=2e-5)


@pytest.mark.parametrize("kinds", deep_but([3, 10**6], [1, 3, 40, 10**6]))
@pytest.mark.parametrize("count", deep_but([1, 900, 1024, 1100], [1, 900, 1024, 1100, 3000]))
@pytest.mark.parametrize("most", [1024, 16384])  # with 1024, more shares are several tiles
def test_the_choice_is_that_of_a_stable_sort(device: str, count: int, kinds: int, most: int) -> None:
    from vcc.decoders.kernels.step import NODES, choose

    draw = torch.Generator().manual_seed(count + kinds)
    shares = torch.full((3, -(-count // NODES) * NODES), -1.0)
    shares[:, :count] = torch.randint(kinds, (3, count), generator=draw).float().exp2().clamp(max=2.0**20) / 2**30
    if kinds > 100:
        shares[:, :count] = torch.rand(3, count, generator=draw) ** 8
    shares[1, count // 2 :] = -1.0  # a shorter sequence
    shares[2, : count // 3] = 0.0
    for wanted in sorted({1, min(32, count), count // 2 or 1, count}):
        there = shares.clone().to(device)
        opened = torch.full((3, wanted), 7, dtype=torch.int32, device=device)
        choose(there, opened, wanted, most)
        for row, places, after in zip(shares, opened.cpu(), there.cpu(), strict=True):
            expected = row.sort(descending=True, stable=True).indices[:wanted]
            expected = expected[row[expected] >= 0].sort().values
            assert places[: len(expected)].tolist() == expected.tolist()
            assert (places[len(expected) :] == -1).all()
            assert torch.equal(after, row.index_fill(0, expected, -2.0))


def test_what_the_kernels_cannot_do_is_said() -> None:
    layer = filled(DecoderConfig(**SMALL, mass=0.9), 150, 2, 16, torch.float32, "cpu")
    query = torch.zeros(2, 4, 1, 16)
    assert "fixed number" in str(why_no_kernel(query, layer.tree, layer.settings))
    settings = dataclasses.replace(layer.settings, mass=None)
    assert "2 tokens" in str(why_no_kernel(query.expand(-1, -1, 2, -1), layer.tree, settings))
    assert "powers of 2" in str(why_no_kernel(query[..., :12], layer.tree, settings))
