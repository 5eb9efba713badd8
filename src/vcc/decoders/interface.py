"""The attention and mask functions that transformers finds by name, one pair for each of its own.

`vcc_sdpa` is `sdpa` with trees: prefill, on the keys in text order, is left to `sdpa`, and so are layers whose cache is
not a tree (sliding windows, a user's cache).
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
from vcc.decoders.layer import TreeLayer, TreeStep
from vcc.decoders.open_cache import OPEN
from vcc.decoders.recorded_layer import RecordedLayer
from vcc.decoders.use_kernels import step_by_kernel, why_no_kernel

PREFIX = "vcc_"


def with_trees(implementation: str | None) -> str:
    """The name of an attention implementation with trees, registered with transformers once."""
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
    """query (B, heads, q, D) -> (B, q, heads, D), called by transformers."""
    dense = partial(plain_attention(plain, module), scaling=scaling, dropout=dropout, **kwargs)
    layer = layer_of(module, key)
    if layer is None:
        return dense(module, query, key, value, attention_mask)
    if isinstance(layer, RecordedLayer):
        scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
        return layer.attend(query, scaling).to(query.dtype), None
    step = layer.newest(real_columns(attention_mask, query.shape[2]))
    new, settings = query.shape[2], layer.settings
    if step.reads_all:
        result = dense(module, query, *layer.in_columns(), attention_mask)
        if new <= settings.block and not layer.exact:
            layer.note_rows(step.first, new, None)
        step.settle()
        return result
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if new == 1:
        step.leave_growth()
        return attend_layer(layer, query, 1, scaling, False).to(query.dtype), None
    return attend_parts(step, query, scaling).to(query.dtype), None


def layer_of(module: Any, key: Tensor) -> TreeLayer | RecordedLayer | None:
    """The layer of the open cache that just received a module's keys; None: it has no tree."""
    layers = getattr(OPEN.get(), "layers", ())
    number = getattr(module, "layer_idx", None)
    layer = layers[number] if isinstance(number, int) and number < len(layers) else None
    return layer if isinstance(layer, (TreeLayer, RecordedLayer)) and layer.holds(key) else None


def attend_parts(step: TreeStep, query: Tensor, scaling: float) -> Tensor:
    """Queries (B, heads, q, D), in parts that each see the tree of their time -> (B, q, heads, D)."""
    layer, new, settings = step.layer, step.new, step.layer.settings
    together = new > settings.block
    ends = [*range(settings.block, new, settings.block), new] if together else step.parts()
    outputs, start = [], 0
    for end in ends:
        step.advance(end)
        outputs.append(attend_layer(layer, query[:, :, start:end], new - start, scaling, together))
        step.settle(end, whole_pieces=together and end < new)
        start = end
    return torch.cat(outputs, 1)


def attend_layer(layer: TreeLayer, query: Tensor, back: int, scaling: float, together: bool) -> Tensor:
    """Queries (B, heads, q, D), starting `back` columns before the end -> (B, q, heads, D).

    `together`: they choose nodes jointly.
    """
    batch, heads, new, width = query.shape
    rows = layer.rows
    kv_heads = rows.keys.shape[1]
    first = layer.length - back
    # The kernels read every live row, so their one token must be the last.
    if query.device.type == "cuda" and back == 1 and why_no_kernel(query, layer.tree, layer.settings) is None:
        output, read = step_by_kernel(layer, query, scaling)
        layer.note_rows(first, new, float(read.mean()))
        return output
    own = torch.arange(first, first + new, device=query.device)
    seen = rows.used - (back - new)  # rows before those of later columns
    if not bool((layer.counts.outside == seen).all()):  # with padding, rows stand elsewhere
        seen = rows.used
    keys, values, columns, live = rows.keys[:, :, :seen], rows.values[:, :, :seen], rows.columns, rows.live
    visible = live[:, None, :seen].expand(-1, new, -1)  # (B, q, m)
    if layer.causal:
        visible = visible & (columns[:, None, :seen] <= own[:, None])
    vips = query.unflatten(1, (kv_heads, heads // kv_heads)).transpose(2, 3)  # (B, H, q, g, D)
    group = vips.shape[3]
    visible = visible[:, :, None].expand(-1, -1, group, -1)  # (B, q, g, m)
    if together:
        vips, visible = vips.flatten(2, 3)[:, :, None], visible.flatten(1, 2)[:, None]
    attended = attend_tree(vips, keys, values, visible, layer.tree, layer.owner, layer.settings, scaling)
    layer.note_rows(first, new, attended.rows.double().mean())
    output = attended.output.view(batch, kv_heads, new, group, width)
    return output.permute(0, 2, 1, 3, 4).reshape(batch, new, heads, width)


def plain_attention(name: str, module: Any) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """transformers' own attention of that name; each family has its own eager one."""
    if name == "eager":
        return importlib.import_module(type(module).__module__).eager_attention_forward
    return ALL_ATTENTION_FUNCTIONS[name]


def real_columns(mask: Tensor | None, new: int) -> Tensor | None:
    """(B, q) which of the newest columns are tokens, by the mask: the last query sees all of them."""
    if mask is None:
        return None
    row = mask if mask.ndim == 2 else mask[:, 0, -1]
    row = row[:, -new:]
    return row if row.dtype == torch.bool else row == (1 if mask.ndim == 2 else 0)
