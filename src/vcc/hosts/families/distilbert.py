"""DistilBERT: layers of BERT, with other names."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from vcc.hosts.families.bert import BertHost
from vcc.hosts.families.host import LayerParts


@dataclass(frozen=True)
class DistilBertHost(BertHost):
    """BERT's embeddings, without types of tokens."""

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

    def output(self, hidden: Any, hidden_states: Any) -> BaseModelOutput:  # type: ignore[override]
        return BaseModelOutput(last_hidden_state=hidden, hidden_states=hidden_states)
