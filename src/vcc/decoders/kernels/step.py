"""One token's attention over a tree, with the kernels of `tiles.py`: static shapes and no waiting for the device, so it
can be captured in a CUDA graph. Needs Triton."""

import math
from dataclasses import dataclass
from typing import Any

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
    wanted: int,
    scaling: float,
    node_counts: Tensor | None = None,
    pages: LeafPages | None = None,
) -> Tensor:
    """Attention of query (B, H, g, D) over rows (B, H, m, D) that are live (B, m) and a tree of two scales.

    `wanted` nodes are opened by each KV head. Sequence b reads sequence owner[b] of the tree, owner being (B,); without
    owners its own, or the only one there is. `node_counts` (E,) replace the tree's own; `pages` replace its tokens.
    -> (B, H, g, D).
    """
    batch, heads, group, width = query.shape
    means, mean_values, leaf = tree.key_means[0], tree.value_means[0], tree.scales[0]
    nodes, rows, every = means.shape[2], keys.shape[2], batch * heads
    wanted = min(wanted, nodes)
    plus = math.log(leaf)
    above, beside, below = (triton.cdiv(a, b) for a, b in ((nodes, NODES), (rows, ROWS), (wanted * leaf, ROWS)))
    stretches = above + beside + below  # in this order: attention is shared among the first two
    shape = {"HEADS": heads, "GROUP": group, "VIPS": max(LEAST, triton.next_power_of_2(group)), "D": width}
    owned: Any = {"OWNED": owner is not None, "BLOCK": NODES}
    new: Any = {"dtype": sum_dtype(query.dtype), "device": query.device}
    query, keys, values = query.contiguous(), with_rows_together(keys), with_rows_together(values)

    maxima, sums = torch.empty(every, stretches, group, **new), torch.empty(every, stretches, group, **new)
    outputs = torch.empty(every, stretches, group, width, **new)
    into = (maxima, sums, outputs, scaling, plus)
    counts = tree.node_counts if node_counts is None else node_counts
    tree_of = (counts if owner is None else owner.contiguous(), counts.contiguous())
    elements = len(tree.lengths)
    tiles.attend_rows[(every, above + beside)](
        query, keys, values, live.contiguous().view(torch.int8), means, *tree_of, *into, *keys.stride()[:2],
        *values.stride()[:2], elements, nodes, rows, above, stretches, ROW_BLOCK=ROWS, **owned, **shape,
    )  # fmt: skip
    if above:
        shares = torch.empty(every, above * NODES, dtype=torch.float32, device=query.device)
        opened = torch.empty(every, max(wanted, 1), dtype=torch.int32, device=query.device)
        if wanted:
            spreads = tree.spreads[0]
            features = spreads.shape[3]
            tiles.share_nodes[(every, above)](
                query, means, spreads, *tree_of, maxima, sums, shares, scaling, plus, SPREAD, elements, nodes, above,
                beside, stretches, FEATURES=features, ROOM=max(LEAST, features), PARTS=PARTS,
                PRECISION="tf32x3" if query.dtype.itemsize == 2 else "ieee", **owned, **shape,
            )  # fmt: skip
            choose(shares, opened, wanted)
        leaves: tuple[Tensor, ...] = (tree.keys, tree.values, counts)
        tokens = tree.keys.shape[2]
        if pages is not None:
            leaves, tokens = (pages.keys, pages.values, pages.table), len(pages.keys) * leaf
        tiles.attend_nodes[(every, above + below)](
            query, means, mean_values, *leaves, *tree_of, shares, opened, *into, elements, nodes, tokens, above,
            beside, wanted, stretches, LEAF=leaf, LEAF_BLOCK=ROWS, ANY=wanted > 0, PAGED=pages is not None, **owned,
            **shape,
        )  # fmt: skip
    output = torch.empty_like(query)
    some = min(width, 32)
    tiles.join[(every * group, width // some)](
        maxima, sums, outputs, output, stretches, GROUP=group, D=width, SOME=some, PARTS=PARTS
    )
    return output


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
