"""Longformer's attention as FlexAttention computes it: the same weights and the same results in a few kernels a layer.

Hugging Face's Longformer cuts queries and keys into overlapping chunks, and launching its many small kernels takes most
of its time. Here one kernel a layer attends within the windows and to the global tokens. FlexAttention has no backward
pass on a CPU and no dropout of probabilities.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.models.longformer.modeling_longformer import LongformerLayer, LongformerSelfAttention

from vcc.errors import ModelError

BLOCK = 128  # tokens; what FlexAttention skips or computes as a whole
PREFIX = 64  # the first tokens, among which all global ones are, are counted in this many


@dataclass
class VisibleBlocks:
    """Who sees whom in a batch, found by the first layer with these windows and kept for the others.

    The tensors that the kernel looks up keep their place: a new batch of the same shape is copied into them, so nothing
    is compiled again. They are of 32 bits: on an H200 a kernel that looks up bool takes ten times as long.
    """

    batch: Tensor | None = None  # (B, n), the very mask of the batch
    hidden: Tensor | None = None  # (B, n) 1 for the tokens that are masked
    everywhere: Tensor | None = None  # (B, n) 1 for the global ones
    blocks: BlockMask | None = None
    prefix: int = 0  # all global tokens are among the first so many

    def find(self, mask: Tensor, is_global: Tensor, some_global: bool, side: int, masked: bool = True) -> None:
        """`mask` (B, n) marks the tokens that are masked or, if `masked` is false, the others."""
        if self.batch is mask:
            return
        self.batch, n = mask, mask.shape[1]
        # Waits for the device once a batch, as Hugging Face's encoder does too.
        places = torch.arange(1, n + 1, device=mask.device)
        last = int((is_global * places).max()) if some_global else 0
        prefix = min(n, -(-last // PREFIX) * PREFIX)
        tokens = mask if masked else ~mask
        known = self.hidden is not None and self.hidden.shape == mask.shape and self.hidden.device == mask.device
        if known and self.prefix == prefix:
            assert self.hidden is not None and self.everywhere is not None
            self.hidden.copy_(tokens)
            self.everywhere.copy_(is_global)
            return
        self.prefix = prefix
        self.hidden, self.everywhere = hidden, everywhere = tokens.int(), is_global.int()

        def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (((i - j).abs() <= side) | (everywhere[b, j] > 0)) & (hidden[b, j] == 0)

        number, index = neighbours(n, side, prefix, mask.device)
        shape = len(mask), 1
        self.blocks = BlockMask.from_kv_blocks(
            number.expand(*shape, -1).contiguous(),
            index.expand(*shape, -1, -1).contiguous(),
            BLOCK_SIZE=BLOCK,
            mask_mod=sees,
            seq_lengths=(n, n),
        )


def neighbours(n: int, side: int, prefix: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each block of queries the number of blocks of keys that it sees (q,), and which (q, k), first those seen."""
    q = -(-n // BLOCK)
    place = torch.arange(q, device=device)
    near = (place[:, None] - place).abs() <= -(-side // BLOCK)
    seen = near | (place * BLOCK < prefix)
    order = seen.to(torch.int8).argsort(dim=1, descending=True, stable=True)
    return seen.sum(1).to(torch.int32), order.to(torch.int32)


class FlexSelfAttention(LongformerSelfAttention):
    """A layer's attention, with the weights of Hugging Face's."""

    visible: VisibleBlocks

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        is_index_masked: Any = None,
        is_index_global_attn: Any = None,
        is_global_attn: Any = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor]:
        self.visible.find(is_index_masked, is_index_global_attn, is_global_attn, self.one_sided_attn_window_size)
        q, k, v = (self.heads(project(hidden_states)) for project in (self.query, self.key, self.value))
        attended = fused(q.is_cuda)(q, k, v, block_mask=self.visible.blocks)
        if self.visible.prefix:
            first = hidden_states[:, : self.visible.prefix]
            q = self.heads(self.query_global(first))
            k, v = (self.heads(project(hidden_states)) for project in (self.key_global, self.value_global))
            everywhere = scaled_dot_product_attention(q, k, v, ~is_index_masked[:, None, None])
            chosen = is_index_global_attn[:, None, : self.visible.prefix, None]
            head = torch.where(chosen, everywhere, attended[:, :, : self.visible.prefix])
            attended = torch.cat([head, attended[:, :, self.visible.prefix :]], 2)
        return (attended.transpose(1, 2).flatten(2),)

    def heads(self, projected: Tensor) -> Tensor:
        """(B, n, D) -> (B, H, n, d)."""
        return projected.unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2)


@cache
def fused(on_cuda: bool) -> Any:
    """Not compiled, FlexAttention is slow and dense: good enough for a test on a CPU."""
    return torch.compile(flex_attention, dynamic=False) if on_cuda else flex_attention


def use_flex(model: PreTrainedModel, compile: bool = False) -> PreTrainedModel:
    """A Longformer itself, whose attention is now FlexAttention's; it is saved as before. `compile`: what a layer does
    beside attention is compiled, for batches of one shape."""
    dropout = model.config.attention_probs_dropout_prob
    if dropout:
        raise ModelError(f"attention_probs_dropout_prob is {dropout}: it must be 0, FlexAttention has no dropout")
    by_window: dict[int, VisibleBlocks] = {}
    for module in model.modules():
        if isinstance(module, LongformerSelfAttention):
            module.__class__ = FlexSelfAttention
            module.visible = by_window.setdefault(module.one_sided_attn_window_size, VisibleBlocks())  # type: ignore[assignment]
        elif compile and isinstance(module, LongformerLayer):
            module.ff_chunk = torch.compile(module.ff_chunk, dynamic=False)  # type: ignore[method-assign]
            module.attention.output.compile(dynamic=False)
    return model
