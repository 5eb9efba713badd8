"""DistilBERT: layers of BERT, with other names."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from vcc.hosts.families.host import (
    FamilyHost,
    Inputs,
    LayerParts,
    repeat_beyond,
    repeat_rows,
    table_size,
    token_places,
)


@dataclass(frozen=True)
class DistilBertHost(FamilyHost):
    """Post-norm layers; learned positions that start at 0."""

    @property
    def layers(self) -> nn.ModuleList:
        return self.model.transformer.layer

    def describe(self, layer: Any) -> LayerParts:
        attention = layer.attention

        def mix(hidden: Tensor, attended: Tensor) -> Tensor:
            hidden = layer.sa_layer_norm(attention.out_lin(attended) + hidden)
            return layer.output_layer_norm(layer.ffn(hidden) + hidden)

        return LayerParts(
            attention.q_lin,
            attention.k_lin,
            attention.v_lin,
            attention.attention_head_size,
            mix,
            dropout=attention.dropout.p,
        )

    @property
    def longest(self) -> int:
        return table_size(self.model.embeddings.position_embeddings)

    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        ids = inputs.get("position_ids") if places is None else places
        ids = (token_places(inputs) if ids is None else ids).clamp(min=0)
        return self.model.embeddings(
            inputs.get("input_ids"), inputs.get("inputs_embeds"), repeat_beyond(ids, 0, self.longest)
        )

    def output(self, hidden: Any, hidden_states: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=hidden, hidden_states=hidden_states)

    def extend(self, whole: Any, max_length: int) -> None:
        embeddings = self.model.embeddings
        if self.longest < max_length:
            embeddings.position_embeddings = repeat_rows(embeddings.position_embeddings, 0, max_length)
            places = torch.arange(max_length, device=embeddings.position_embeddings.weight.device)
            embeddings.position_ids = nn.Buffer(places[None], persistent=False)
            self.model.config.max_position_embeddings = max_length
