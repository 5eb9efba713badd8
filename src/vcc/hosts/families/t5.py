"""T5, Flan-T5 and mT5: pre-norm layers whose attention adds a learned bias for the distance between two rows."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from vcc.attention.scoring import RelativeBias
from vcc.hosts.families.host import FamilyHost, Inputs, LayerParts, below_infinity
from vcc.hosts.families.layer import with_parameters


@dataclass(frozen=True)
class T5Host(FamilyHost):
    """The encoder stack. All layers share the distance table of the first one; scores are not scaled."""

    @property
    def layers(self) -> nn.ModuleList:
        return self.model.block

    def describe(self, layer: Any) -> LayerParts:
        first, last = layer.layer[0], layer.layer[-1]
        attention = first.SelfAttention

        def mix(hidden: Tensor, attended: Tensor) -> Tensor:
            return below_infinity(last(below_infinity(hidden + first.dropout(attention.o(attended)))))

        return LayerParts(
            attention.q,
            attention.k,
            attention.v,
            attention.key_value_proj_dim,
            mix,
            see=lambda hidden, _: first.layer_norm(hidden),
            scale=1.0,
            relative=lambda device: self.relative(layer, device),
            dropout=attention.dropout,
        )

    def relative(self, layer: Any, device: torch.device) -> RelativeBias:
        """The bias by distance, for one of the layers."""
        owner = self.model.block[0]
        attention = owner.layer[0].SelfAttention
        table = attention.relative_attention_bias

        def rows() -> Tensor:
            return table(torch.arange(attention.relative_attention_num_buckets, device=device))

        return RelativeBias(
            rows() if layer is owner else with_parameters(owner, rows), attention.relative_attention_max_distance
        )

    @property
    def last_modules(self) -> tuple[Any, ...]:
        return self.model.final_layer_norm, self.model.dropout

    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        embeds = inputs.get("inputs_embeds")
        if embeds is None:
            embeds = self.model.embed_tokens(inputs["input_ids"])
        if embeds.dtype == torch.float16:
            warnings.warn("T5 overflows in float16; use bfloat16 or float32", stacklevel=2)
        return self.model.dropout(embeds)

    def output(self, hidden: Any, hidden_states: Any) -> BaseModelOutputWithPastAndCrossAttentions:
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden, hidden_states=hidden_states)
