"""ALBERT: narrow embeddings as in ELECTRA, and groups of layers that share their weights."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling

from vcc.hosts.families.bert import BertHost
from vcc.hosts.families.host import Inputs, LayerParts


@dataclass(frozen=True)
class AlbertHost(BertHost):
    """BERT's embeddings; one module stands for several layers, each of which has its own cut through the tree."""

    @property
    def layers(self) -> Any:
        encoder, config = self.model.encoder, self.model.config
        share = config.num_hidden_layers / config.num_hidden_groups
        groups = [encoder.albert_layer_groups[int(i / share)] for i in range(config.num_hidden_layers)]
        return [layer for group in groups for layer in group.albert_layers]

    def describe(self, layer: Any) -> LayerParts:
        attention = layer.attention

        def mix(hidden: Tensor, attended: Tensor) -> Tensor:
            hidden = attention.LayerNorm(hidden + attention.output_dropout(attention.dense(attended)))
            return layer.full_layer_layer_norm(layer.ff_chunk(hidden) + hidden)

        return LayerParts(
            attention.query,
            attention.key,
            attention.value,
            attention.attention_head_size,
            mix,
            dropout=attention.attention_dropout.p,
        )

    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        return self.model.encoder.embedding_hidden_mapping_in(super().embed(inputs, places))

    def output(self, hidden: Any, hidden_states: Any) -> BaseModelOutputWithPooling:  # type: ignore[override]
        model, pooler = self.model, self.model._modules.get("pooler")
        pooled = None if pooler is None else model.pooler_activation(pooler(hidden[:, 0]))
        return BaseModelOutputWithPooling(last_hidden_state=hidden, pooler_output=pooled, hidden_states=hidden_states)
