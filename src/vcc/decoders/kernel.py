"""Whether the Triton kernels of one step can run, and running them."""

import torch
from torch import Tensor

from vcc.decoders.config import DecoderConfig
from vcc.decoders.layer import TreeLayer
from vcc.decoders.tree import KeyTree
from vcc.has_triton import why_not_on

TYPES = (torch.bfloat16, torch.float16, torch.float32)


def why_no_kernel(query: Tensor, tree: KeyTree, settings: DecoderConfig) -> str | None:
    """Why queries (B, heads, q, D) cannot go through the kernels; None if they can."""
    width = query.shape[-1]
    if query.shape[2] != 1:
        return f"{query.shape[2]} tokens are given at once; the kernels take one"
    if settings.budget is None or len(settings.scales) != 2:
        return "the kernels open a fixed number of nodes of one scale"
    if not tree.in_reach:
        return f"the leaves are on {tree.keys.device}, the queries on {query.device}"
    if width < 16 or width & (width - 1) or settings.leaf & (settings.leaf - 1):
        return (
            f"heads of {width} numbers and leaves of {settings.leaf} tokens; both must be powers of 2, heads from 16 on"
        )
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
    tree, settings = layer.tree, layer.settings
    assert settings.budget is not None
    grouped = query.view(batch, layer.keys.shape[1], -1, width)
    wanted = settings.budget[0]
    output = step_kernel(grouped, layer.keys, layer.values, layer.live, tree, layer.owner, wanted, scaling)
    # Counted on the CPU, where the layer knows how many tokens it has and where they are: the device has nothing to do.
    nodes = layer.in_tree // settings.leaf
    live = layer.tokens + layer.coming.sum(1) - layer.in_tree
    rows = live + nodes.double() * (1 + tree.spread_rows) + nodes.clamp(max=wanted) * (settings.leaf - 1)
    return output.reshape(batch, 1, heads, width), rows[:, None]
