"""The attention function and the mask function that transformers finds by name, one pair for each of its own.

`vcc_sdpa` is `sdpa` that knows trees: prefill is left to `sdpa`, on the keys as they stand in the text, and so is every
layer whose cache is not a tree (sliding windows, a cache of the user's).
"""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from vcc.decoders.attend import attend_tree
from vcc.decoders.kernel import step_by_kernel, why_no_kernel
from vcc.decoders.layer import TreeLayer

PREFIX = "vcc_"


def with_trees(implementation: str | None) -> str:
    """The name of an attention implementation that knows trees, entered in transformers' tables once."""
    plain = (implementation or "sdpa").removeprefix(PREFIX)
    name = PREFIX + plain
    if name not in ALL_ATTENTION_FUNCTIONS:
        AttentionInterface.register(name, partial(attend, plain))
        AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[plain])
    return name


def attend(
    plain: str,
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """query (B, heads, q, D) -> (B, q, heads, D), as transformers calls it."""
    dense = partial(plain_attention(plain, module), scaling=scaling, dropout=dropout, **kwargs)
    layer: TreeLayer | None = getattr(key, "tree_layer", None)
    if layer is None:
        return dense(module, query, key, value, attention_mask)
    layer.note_padding(real_columns(attention_mask, query.shape[2]))
    new, settings = query.shape[2], layer.settings
    if layer.reads_all(new):
        result = dense(module, query, *layer.in_columns(), attention_mask)
        if new <= settings.block and not layer.reading_all:
            layer.note_rows(layer.length - new, new, None)
        layer.settle()
        return result
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    together = new > settings.block
    ends = [*range(settings.block, new, settings.block), new] if together else layer.steps()
    joining = max(settings.fresh, settings.piece // 8)  # of a prefill: a piece is ordered anew whenever some join it
    outputs, start = [], 0
    for end in ends:
        outputs.append(step(layer, query[:, :, start:end], new - start, scaling, together))
        if not together or end == new or end // joining > start // joining:
            layer.settle(end)
        start = end
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)
    return output.to(query.dtype), None


def step(layer: TreeLayer, query: Tensor, back: int, scaling: float, together: bool) -> Tensor:
    """Queries (B, heads, q, D), the first of which is the column `back` before the end -> (B, q, heads, D)."""
    batch, heads, new, width = query.shape
    kv_heads = layer.keys.shape[1]
    first = layer.length - back
    # The kernels see every row that is live, so nothing may have come after the one token they are given.
    if query.device.type == "cuda" and back == 1 and why_no_kernel(query, layer.tree, layer.settings) is None:
        output, rows = step_by_kernel(layer, query, scaling)
        layer.note_rows(first, new, rows)
        return output
    own = torch.arange(first, first + new, device=query.device)
    visible = layer.live[:, None].expand(-1, new, -1)  # (B, q, m)
    if layer.causal:
        visible = visible & (layer.columns[:, None] <= own[:, None])
    vips = query.unflatten(1, (kv_heads, heads // kv_heads)).transpose(2, 3)  # (B, H, q, g, D)
    group = vips.shape[3]
    visible = visible[:, :, None].expand(-1, -1, group, -1)  # (B, q, g, m)
    if together:
        vips, visible = vips.flatten(2, 3)[:, :, None], visible.flatten(1, 2)[:, None]
    attended = attend_tree(vips, layer.keys, layer.values, visible, layer.tree, layer.owner, layer.settings, scaling)
    layer.note_rows(first, new, attended.rows)
    output = attended.output.view(batch, kv_heads, new, group, width)
    return output.permute(0, 2, 1, 3, 4).reshape(batch, new, heads, width)


def plain_attention(name: str, module: Any) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """transformers' own attention of that name; each family has its own eager one, beside the module's class."""
    if name == "eager":
        return importlib.import_module(type(module).__module__).eager_attention_forward
    return ALL_ATTENTION_FUNCTIONS[name]


def real_columns(mask: Tensor | None, new: int) -> Tensor | None:
    """(B, q): which of the newest columns are tokens, as the mask tells: the last query sees all that are."""
    if mask is None:
        return None
    row = mask if mask.ndim == 2 else mask[:, 0, -1]
    row = row[:, -new:]
    return row if row.dtype == torch.bool else row == (1 if mask.ndim == 2 else 0)
