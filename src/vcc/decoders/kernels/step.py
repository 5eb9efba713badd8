"""One token's attention over a tree, by the kernels of `tiles.py`: static shapes, and nothing waits for the device, so
that it can be captured in a CUDA graph. Imported only where Triton is."""

import math
from typing import Any

import torch
import triton
from torch import Tensor

from vcc.core.rows import sum_dtype
from vcc.decoders.attend import SPREAD
from vcc.decoders.kernels import tiles
from vcc.decoders.tree import KeyTree

NODES = 128  # of a stretch; keys of that many rows fit the registers of a program
PARTS = 64  # stretches that are joined at a time
SORTED = 4096  # candidates that one program sorts; beyond, torch does
LAST = 2147483647  # a place is packed as what is left to it
VIPS = 16  # the least that a product of matrices takes


def step_kernel(
    query: Tensor, keys: Tensor, values: Tensor, live: Tensor, tree: KeyTree, owner: Tensor, wanted: int, scaling: float
) -> Tensor:
    """Attention of query (B, H, g, D) over rows (B, H, m, D) that are live (B, m) and a tree of two scales.

    `wanted` nodes are opened by each KV head. Sequence b reads sequence owner[b] of the tree, owner being (B,).
    -> (B, H, g, D) in the type of sums.
    """
    batch, heads, group, width = query.shape
    means, mean_values, leaf = tree.key_means[0], tree.value_means[0], tree.scales[0]
    nodes, rows, every = means.shape[2], keys.shape[2], batch * heads
    wanted = min(wanted, nodes)
    plus = math.log(leaf)
    above = triton.cdiv(nodes, NODES)
    shape = {"HEADS": heads, "GROUP": group, "VIPS": max(VIPS, triton.next_power_of_2(group)), "D": width}
    new: Any = {"dtype": sum_dtype(query.dtype), "device": query.device}
    query, keys, values = query.contiguous(), keys.contiguous(), values.contiguous()

    leaf_block, row_block = max(16, leaf), 64
    below, beside = triton.cdiv(wanted * leaf, leaf_block), triton.cdiv(rows, row_block)
    stretches = above + beside + below  # in this order: the first two are all that attention is shared among
    maxima, sums = torch.empty(every, stretches, group, **new), torch.empty(every, stretches, group, **new)
    outputs = torch.empty(every, stretches, group, width, **new)
    into = (maxima, sums, outputs, scaling, stretches)
    if beside:
        tiles.attend_rows[(every, beside)](
            query, keys, values, live.to(torch.int8), *into, rows, above, BLOCK=row_block, **shape
        )
    if above:
        tree_of = (owner, tree.node_counts)
        opened = torch.empty(every, wanted, dtype=torch.int32, device=query.device)
        if wanted:
            tiles.sum_nodes[(every, above)](
                query, means, *tree_of, maxima, sums, scaling, plus, nodes, stretches, BLOCK=NODES, **shape
            )
            each, spreads = min(wanted, NODES), tree.spreads[0]
            candidates = torch.empty(every, above * each, dtype=torch.int64, device=query.device)
            tiles.choose_candidates[(every, above)](
                query, means, spreads, *tree_of, maxima, sums, candidates, scaling, plus, SPREAD, nodes, stretches,
                above + beside, BLOCK=NODES, WANTED=each, FEATURES=spreads.shape[3], PARTS=PARTS, **shape,
            )  # fmt: skip
            room = triton.next_power_of_2(above * each)
            if room <= SORTED:
                tiles.keep_best[(every,)](candidates, opened, above * each, ROOM=room, WANTED=wanted)
            else:
                best = candidates.topk(wanted, dim=1).values
                opened = (LAST - (best & LAST)).to(torch.int32)
            tiles.attend_leaves[(every, below)](
                query, tree.keys, tree.values, *tree_of, opened, *into, tree.keys.shape[2], above + beside,
                LEAF=leaf, BLOCK=leaf_block, WANTED=wanted, **shape,
            )  # fmt: skip
        slots = triton.next_power_of_2(max(wanted, 1))
        tiles.attend_nodes[(every, above)](
            query, means, mean_values, *tree_of, opened, *into, plus, nodes,
            BLOCK=NODES, WANTED=wanted, SLOTS=slots, **shape,
        )  # fmt: skip
    output = torch.empty(batch, heads, group, width, **new)
    tiles.join[(every * group,)](maxima, sums, outputs, output, stretches, GROUP=group, D=width, PARTS=PARTS)
    return output
