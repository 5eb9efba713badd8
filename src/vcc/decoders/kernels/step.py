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
from vcc.decoders.tree import KeyTree, grouped

NODES = 128  # of a stretch; keys of that many rows fit the registers of a program
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
    stretches = above + below + beside
    maxima, sums = torch.empty(every, stretches, group, **new), torch.empty(every, stretches, group, **new)
    outputs = torch.empty(every, stretches, group, width, **new)
    into = (maxima, sums, outputs, scaling, stretches)
    if beside:
        tiles.attend_rows[(every, beside)](
            query, keys, values, live.to(torch.int8), *into, rows, above + below, BLOCK=row_block, **shape
        )
    if above:
        highest, summed = torch.empty(every, above, group, **new), torch.empty(every, above, group, **new)
        tree_of = (owner, tree.node_counts)
        tiles.sum_nodes[(every, above)](
            query, means, *tree_of, highest, summed, scaling, plus, nodes, BLOCK=NODES, num_warps=4, **shape
        )
        outside = slice(above + below, None)
        logs = torch.cat([highest + summed.log(), maxima[:, outside] + sums[:, outside].log()], 1)
        totals = logs.logsumexp(1)  # (every, g)
        each = min(wanted, NODES)
        opened = torch.zeros(every, wanted, dtype=torch.int32, device=query.device)
        if wanted:
            shares = torch.empty(every, above * each, **new)
            places = torch.empty(every, above * each, dtype=torch.int32, device=query.device)
            spreads = tree.spreads[0]
            squares = grouped((query.to(new["dtype"]) * scaling).square(), spreads.shape[-1]).mul_(SPREAD).contiguous()
            features = squares.shape[-1]
            tiles.choose_candidates[(every, above)](
                query, means, squares, spreads, *tree_of, totals, shares, places, scaling, plus, nodes,
                BLOCK=NODES, WANTED=each, FEATURES=features, WIDE=max(16, features), **shape,
            )  # fmt: skip
            opened = places.gather(1, shares.topk(wanted, dim=1).indices)
            tiles.attend_leaves[(every, below)](
                query, tree.keys, tree.values, *tree_of, opened, *into, tree.keys.shape[2], above,
                LEAF=leaf, BLOCK=leaf_block, WANTED=wanted, **shape,
            )  # fmt: skip
        slots = triton.next_power_of_2(max(wanted, 1))
        tiles.attend_nodes[(every, above)](
            query, means, mean_values, *tree_of, opened, *into, plus, nodes,
            BLOCK=NODES, WANTED=wanted, SLOTS=slots, **shape,
        )  # fmt: skip
    high = maxima.amax(1, keepdim=True)
    weights = (maxima - high).exp()  # (every, stretches, g)
    output = (weights[..., None] * outputs).sum(1) / (weights * sums).sum(1)[..., None]
    return output.view(batch, heads, group, width)
