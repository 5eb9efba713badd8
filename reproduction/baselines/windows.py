"""Longformer's attention in any BERT-like model: windows, and tokens that see and are seen by all.

Unlike Longformer's own class it has no second set of projections for global tokens, so it fits models that this class
does not, such as pre-norm ones. On a GPU FlexAttention computes it.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from reproduction.baselines.flex_longformer import VisibleBlocks, fused
from reproduction.baselines.patterns import BlockPattern, at_least

VISIBLE: dict[int, VisibleBlocks] = {}  # of the last batch, by the size of a window's side: its layers share it


@final
@dataclass(frozen=True)
class Windows(BlockPattern):
    """Each token sees `window` tokens around it, half of them on each side, and all global tokens."""

    window: int = 512

    name = "windows"

    def __post_init__(self) -> None:
        at_least(2, window=self.window)

    def attend_heads(
        self, q: Tensor, k: Tensor, v: Tensor, real: Tensor, is_global: Tensor | None, scale: float, layer: int
    ) -> Tensor:
        everywhere = torch.zeros_like(real) if is_global is None else (is_global != 0) & real
        side = self.window // 2
        if q.is_cuda:
            return attend_flex(q, k, v, real, everywhere, is_global is not None, side, scale)
        place = torch.arange(q.shape[2], device=q.device)
        near = (place[:, None] - place).abs() <= side
        sees = (near | everywhere[:, :, None] | everywhere[:, None]) & real[:, None]
        sees = sees | ~sees.any(2, keepdim=True)  # padding may see anything
        return scaled_dot_product_attention(q, k, v, sees[:, None], scale=scale)


def attend_flex(
    q: Tensor, k: Tensor, v: Tensor, real: Tensor, everywhere: Tensor, some_global: bool, side: int, scale: float
) -> Tensor:
    visible = VISIBLE.setdefault(side, VisibleBlocks())
    visible.find(real, everywhere, some_global, side, masked=False)
    attended = fused(True)(q, k, v, block_mask=visible.blocks, scale=scale)
    if not visible.prefix:
        return attended
    first = scaled_dot_product_attention(q[:, :, : visible.prefix], k, v, real[:, None, None], scale=scale)
    chosen = everywhere[:, None, : visible.prefix, None]
    head = torch.where(chosen, first, attended[:, :, : visible.prefix])
    return torch.cat([head, attended[:, :, visible.prefix :]], 2)
