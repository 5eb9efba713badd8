"""Check whether the Triton kernels of a step can run, and run them."""

import torch
from torch import Tensor

from vcc.decoders.config import DecoderConfig
from vcc.decoders.counts import TokenCounts
from vcc.decoders.layer import TreeLayer
from vcc.decoders.tree import KeyTree
from vcc.has_triton import why_not_on

TYPES = (torch.bfloat16, torch.float16, torch.float32)


def why_no_kernel(query: Tensor, tree: KeyTree, settings: DecoderConfig) -> str | None:
    """Why queries (B, heads, q, D) cannot go through the kernels; None if they can."""
    width = query.shape[-1]
    if query.shape[2] != 1:
        return f"{query.shape[2]} tokens are given; the kernels take one"
    if settings.budgets is None:
        return "the kernels open a fixed number of nodes"
    if not tree.in_reach:
        return f"the leaves are on {tree.keys.device}, the queries on {query.device}"
    if width < 16 or any(number & (number - 1) for number in (width, *settings.scales)):
        return f"heads of {width} numbers and scales {settings.scales}; all must be powers of 2, heads from 16 on"
    if query.dtype not in TYPES:
        return f"the dtype is {query.dtype}; it must be bfloat16, float16 or float32"
    if torch.is_grad_enabled() and query.requires_grad:
        return "the kernels have no gradient"
    return why_not_on(query.device)


def step_by_kernel(layer: TreeLayer, query: Tensor, scaling: float) -> tuple[Tensor, Tensor]:
    """One query token (B, heads, 1, D) over all a layer keeps -> (B, 1, heads, D), and the rows it read, (B, 1),
    on the CPU."""
    from vcc.decoders.kernels.step import step_kernel

    batch, heads, _, width = query.shape
    settings, rows = layer.settings, layer.rows.labelled()
    assert settings.budgets is not None
    grouped = query.view(batch, rows.keys.shape[1], -1, width)
    # All of the storage, like a recorded step: recorded or not, the sums are the same.
    output = step_kernel(grouped, rows.keys, rows.values, rows.live, layer.tree, layer.owner, settings.budgets, scaling)
    return output.reshape(batch, 1, heads, width), rows_read(layer.counts, layer.tree)[:, None]


def rows_read(counts: TokenCounts, tree: KeyTree) -> Tensor:
    """(B,) rows that one token reads; on the CPU, without waiting for the device."""
    settings = counts.settings
    assert settings.budgets is not None
    rows = counts.outside.double()
    visited = counts.in_tree // settings.scales[0]
    for budget, scale, finer in zip(settings.budgets, settings.scales, settings.scales[1:], strict=False):
        opened = visited.clamp(max=budget)
        rows = rows + visited * (1 + tree.spread_rows) - opened
        visited = opened * (scale // finer)
    return rows + visited
