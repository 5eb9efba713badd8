"""T5, Flan-T5 and mT5: pre-norm layers whose attention adds a learned bias for the distance between two rows."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from vcc.attention.attend import attend
from vcc.attention.scoring import RelativeBias, Scoring
from vcc.core.rows import Rows
from vcc.core.score import vip_attention
from vcc.hosts.host import FamilyHost, Inputs, checkpointed, in_type, merge_heads, split_heads


@dataclass(frozen=True)
class T5Host(FamilyHost):
    """The encoder stack. All layers share the distance table of the first one; scores are not scaled."""

    @property
    def num_layers(self) -> int:
        return len(self.model.block)

    @property
    def relative(self) -> RelativeBias:
        attention = self.model.block[0].layer[0].SelfAttention
        return RelativeBias(attention.relative_attention_bias.weight, attention.relative_attention_max_distance)

    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        embeds = inputs.get("inputs_embeds")
        if embeds is None:
            embeds = self.model.embed_tokens(inputs["input_ids"])
        if embeds.dtype == torch.float16:
            warnings.warn("T5 overflows in float16; use bfloat16 or float32", stacklevel=2)
        return self.model.dropout(embeds)

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        block = self.model.block[index]
        part, attention = block.layer[0], block.layer[0].SelfAttention

        def run(hidden: Tensor) -> Tensor:
            seen = part.layer_norm(hidden)
            q, k, v = (
                split_heads(project(seen), attention.key_value_proj_dim)
                for project in (attention.q, attention.k, attention.v)
            )
            dropout = attention.dropout if self.training else 0.0
            mixed = attend(q, k, v, rows, Scoring(1.0, self.relative, None, consecutive, dropout))
            hidden = limited(hidden + part.dropout(attention.o(merge_heads(mixed))))
            return limited(block.layer[-1](hidden))

        return checkpointed(block, run, rows.hidden)

    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        part = self.model.block[index].layer[0]
        attention, size = part.SelfAttention, part.SelfAttention.key_value_proj_dim
        q = split_heads(attention.q(part.layer_norm(vips.hidden)), size)
        k = split_heads(attention.k(part.layer_norm(in_type(nodes, vips.hidden.dtype))), size)
        bias = self.relative.between(vips.positions, nodes.positions)
        return vip_attention(q, k, vips, nodes, 1.0, bias)

    def finish(self, hidden: Tensor) -> Tensor:
        return self.model.dropout(self.model.final_layer_norm(hidden))

    def output(self, hidden: Any, hidden_states: Any) -> BaseModelOutputWithPastAndCrossAttentions:
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden, hidden_states=hidden_states)


def limited(hidden: Tensor) -> Tensor:
    """Float16 clamped below infinity, as T5 does."""
    if hidden.dtype != torch.float16:
        return hidden
    bound = torch.finfo(torch.float16).max - 1000
    return hidden.clamp(-bound, bound)
