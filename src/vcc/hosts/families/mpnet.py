"""MPNet: RoBERTa's positions, and a learned bias by distance like T5's, which all layers share."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vcc.attention.scoring import RelativeBias
from vcc.hosts.families.bert import BertHost
from vcc.hosts.families.host import LayerParts

BUCKETS, MAX_DISTANCE = 32, 128  # Hugging Face's MPNet uses these, whatever its configuration says


@dataclass(frozen=True)
class MPNetHost(BertHost):
    """RoBERTa's embeddings, without types of tokens."""

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
