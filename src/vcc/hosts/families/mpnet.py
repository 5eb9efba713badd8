"""MPNet: RoBERTa's positions, and a learned bias by distance like T5's, which all layers share."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.mpnet.modeling_mpnet import create_position_ids_from_input_ids

from vcc.attention.scoring import RelativeBias
from vcc.hosts.families.host import (
    FamilyHost,
    Inputs,
    LayerParts,
    repeat_beyond,
    repeat_rows,
    table_size,
    token_places,
)

BUCKETS, MAX_DISTANCE = 32, 128  # Hugging Face's MPNet uses these, whatever its configuration says


@dataclass(frozen=True)
class MPNetHost(FamilyHost):
    """Post-norm layers; learned positions behind the padding token's row."""

    @property
    def layers(self) -> nn.ModuleList:
        return self.model.encoder.layer

    def describe(self, layer: Any) -> LayerParts:
        outer, attention = layer.attention, layer.attention.attn

        def mix(hidden: Tensor, attended: Tensor) -> Tensor:
            hidden = outer.LayerNorm(outer.dropout(attention.o(attended)) + hidden)
            return layer.output(layer.intermediate(hidden), hidden)

        return LayerParts(
            attention.q,
            attention.k,
            attention.v,
            attention.attention_head_size,
            mix,
            relative=self.relative,
            dropout=attention.dropout.p,
        )

    def relative(self, device: torch.device) -> RelativeBias:
        table = self.model.encoder.relative_attention_bias(torch.arange(BUCKETS, device=device))
        return RelativeBias(table, MAX_DISTANCE)

    @property
    def first(self) -> int:
        """The first position's row in the table."""
        return self.model.embeddings.padding_idx + 1

    @property
    def longest(self) -> int:
        return table_size(self.model.embeddings.position_embeddings) - self.first

    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        tokens, embeddings = inputs.get("input_ids"), self.model.embeddings
        ids = inputs.get("position_ids") if places is None else places + self.first
        if ids is None and tokens is None:
            ids = token_places(inputs) + self.first
        elif ids is None:
            ids = create_position_ids_from_input_ids(tokens, embeddings.padding_idx)
        ids = repeat_beyond(ids.clamp(min=self.first - 1), self.first, self.first + self.longest)
        return embeddings(tokens, position_ids=ids, inputs_embeds=inputs.get("inputs_embeds"))

    def output(self, hidden: Any, hidden_states: Any) -> BaseModelOutputWithPooling:
        pooler = self.model._modules.get("pooler")
        pooled = None if pooler is None else pooler(hidden)
        return BaseModelOutputWithPooling(last_hidden_state=hidden, pooler_output=pooled, hidden_states=hidden_states)

    def extend(self, whole: Any, max_length: int) -> None:
        embeddings, size = self.model.embeddings, self.first + max_length
        if self.longest < max_length:
            embeddings.position_embeddings = repeat_rows(embeddings.position_embeddings, self.first, size)
            places = torch.arange(size, device=embeddings.position_embeddings.weight.device)
            embeddings.position_ids = nn.Buffer(places[None], persistent=False)
            self.model.config.max_position_embeddings = size
