"""One token's attention over a tree, with the kernels of `tiles.py`: static shapes and no waiting for the device, so it
can be captured in a CUDA graph. Needs Triton."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from vcc.core.rows import sum_dtype
from vcc.decoders.attend import SPREAD
from vcc.decoders.kernels import tiles
from vcc.decoders.tree import KeyTree

NODES = 128  # of a stretch; this many keys fit the registers of a program
ROWS = 64  # tokens of a stretch
PARTS = 64  # stretches that are joined at a time
LEAST = 16  # rows of a matrix product
TILE = 16384  # shares that the choosing program keeps in registers; more are read again in every round


@dataclass(frozen=True)
class LeafPages:
    """The tokens of a tree's leaves in a pool of pages, each of one leaf, in any order and shared by any sequences."""

    keys: Tensor  # (P, leaf, D)
    values: Tensor
    table: Tensor  # (E, H, nodes) int32, the page of each node's tokens


def step_kernel(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    live: Tensor,
    tree: KeyTree,
    owner: Tensor | None,
    budgets: Sequence[int],
    scaling: float,
    node_counts: Tensor | None = None,
    pages: LeafPages | None = None,
) -> Tensor:
    """Attention of query (B, H, g, D) over rows (B, H, m, D) that are live (B, m) and a tree.

    Each KV head opens so many nodes of each scale as `budgets` says. Sequence b reads sequence owner[b] of the tree,
    owner being (B,); without owners its own, or the only one there is. `node_counts` (E,) of the coarsest scale replace
    the tree's own; `pages` replace its tokens. -> (B, H, g, D).
    """
    batch, heads, group, width = query.shape
    rows, every, leaf = keys.shape[2], batch * heads, tree.scales[-2]
    shape = {"HEADS": heads, "GROUP": group, "VIPS": max(LEAST, triton.next_power_of_2(group)), "D": width}
    owned: Any = {"OWNED": owner is not None, "BLOCK": NODES}
    new: Any = {"dtype": sum_dtype(query.dtype), "device": query.device}
    query, keys, values = query.contiguous(), with_rows_together(keys), with_rows_together(values)
    beside = triton.cdiv(rows, ROWS)
    levels = visited(tree, budgets, beside)
    below = levels[-1].seen  # where the leaves' stretches begin
    stretches = below + triton.cdiv(levels[-1].wanted * leaf, ROWS)

    maxima, sums = torch.empty(every, stretches, group, **new), torch.empty(every, stretches, group, **new)
    outputs = torch.empty(every, stretches, group, width, **new)
    counts = tree.node_counts if node_counts is None else node_counts
    tree_of = (counts if owner is None else owner.contiguous(), counts.contiguous())
    elements = len(tree.lengths)
    parents = counts  # of the coarsest scale there are none
    leaves: tuple[Tensor, ...] = (tree.keys, tree.values, counts)
    tokens = tree.keys.shape[2]
    if pages is not None:
        leaves, tokens = (pages.keys, pages.values, pages.table), len(pages.keys) * leaf
    for depth, (level, own) in enumerate(zip(levels, level_tensors(tree), strict=True)):
        above, nodes, last = level.above, own.means.shape[2], depth + 1 == len(levels)
        into = (maxima, sums, outputs, scaling, math.log(level.scale))
        known: Any = {"FAN_OUT": level.fan_out, **owned, **shape}
        sums_of = above + (0 if depth else beside)
        if sums_of:
            tiles.attend_rows[(every, sums_of)](
                query, keys, values, live.contiguous().view(torch.int8), own.means, *tree_of, parents, *into,
                *keys.stride()[:2], *values.stride()[:2], elements, nodes, rows, above, level.first, level.before,
                stretches, ROW_BLOCK=ROWS, **known,
            )  # fmt: skip
        if not above:
            break
        shares = torch.empty(every, above * NODES, dtype=torch.float32, device=query.device)
        opened = torch.empty(every, max(level.wanted, 1), dtype=torch.int32, device=query.device)
        if level.wanted:
            features = own.spreads.shape[3]
            tiles.share_nodes[(every, above)](
                query, own.means, own.spreads, *tree_of, parents, maxima, sums, shares, scaling, math.log(level.scale),
                SPREAD, elements, nodes, above, level.before, level.seen, stretches, FEATURES=features,
                ROOM=max(LEAST, features), PARTS=PARTS, PRECISION="tf32x3" if query.dtype.itemsize == 2 else "ieee",
                **known,
            )  # fmt: skip
            choose(shares, opened, level.wanted)
        tiles.attend_nodes[(every, above + (stretches - below if last else 0))](
            query, own.means, own.values, *leaves, *tree_of, parents, shares, opened, *into, elements, nodes, tokens,
            above, level.first, below, level.before, level.wanted, stretches, LEAF=leaf, LEAF_BLOCK=ROWS,
            ANY=level.wanted > 0, PAGED=pages is not None, **known,
        )  # fmt: skip
        parents = opened if depth == 0 or last else nodes_at(opened, parents, level.fan_out)
    output = torch.empty_like(query)
    some = min(width, 32)
    tiles.join[(every * group, width // some)](
        maxima, sums, outputs, output, stretches, GROUP=group, D=width, SOME=some, PARTS=PARTS
    )
    return output


def nodes_at(opened: Tensor, parents: Tensor, fan_out: int) -> Tensor:
    """The nodes at places (R, w) among the children of parents (R, before); -1 stays."""
    place = opened.clamp(min=0).long()
    nodes = parents.gather(1, place // fan_out) * fan_out + place % fan_out
    return torch.where(opened < 0, -1, nodes).to(torch.int32)


@dataclass(frozen=True)
class Level:
    """What is visited of one scale. Stretches are in the order: coarsest scale, rows, finer scales, leaves."""

    scale: int
    fan_out: int  # children of a node of the scale above; 0 at the coarsest, of which all nodes are visited
    before: int  # opened nodes of the scale above
    wanted: int
    above: int  # stretches
    first: int  # number of its first stretch
    seen: int  # stretches that the attention is shared among: all up to its last one, and the rows


def visited(tree: KeyTree, budgets: Sequence[int], beside: int) -> list[Level]:
    levels: list[Level] = []
    count, first = tree.key_means[0].shape[2], 0
    for depth, (scale, budget) in enumerate(zip(tree.scales, budgets, strict=False)):
        fan_out = tree.scales[depth - 1] // scale if depth else 0
        before = levels[-1].wanted if depth else 0
        count = before * fan_out if depth else count
        above, wanted = triton.cdiv(count, NODES), min(budget, count)
        seen = first + above + (0 if depth else beside)
        levels.append(Level(scale, fan_out, before, wanted, above, first, seen))
        first = seen
    return levels


class LevelTensors(NamedTuple):
    means: Tensor
    values: Tensor
    spreads: Tensor


def level_tensors(tree: KeyTree) -> list[LevelTensors]:
    """Of each scale with means."""
    return [LevelTensors(*parts) for parts in zip(tree.key_means, tree.value_means, tree.spreads, strict=True)]


def choose(shares: Tensor, opened: Tensor, wanted: int, most: int = TILE) -> None:
    """Write the places of the largest of shares (R, n stretches) to opened (R, wanted); their shares become -2."""
    count = shares.shape[1]
    tile = max(1024, triton.next_power_of_2(count)) if count <= most else most // 2  # reading again takes registers too
    tiles.choose_nodes[(len(shares),)](
        shares, opened, count // NODES, wanted, BLOCK=NODES, TILE=tile, ONE=count <= tile,
        num_warps=min(16, max(4, tile // 512)),
    )  # fmt: skip


def with_rows_together(tokens: Tensor) -> Tensor:
    """Tokens (B, H, m, D) with each head's contiguous; a part of longer storage is not copied."""
    return tokens if tokens.stride()[2:] == (tokens.shape[3], 1) else tokens.contiguous()
