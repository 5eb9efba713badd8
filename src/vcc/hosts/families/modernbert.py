"""ModernBERT: rotary positions at the rows' mean positions; its local layers keep their window, by real position."""

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

from vcc.hosts.families.host import FamilyHost, Inputs, LayerParts


@dataclass(frozen=True)
class ModernBertHost(FamilyHost):
    """Pre-norm layers, some of which attend only to rows nearby."""

    @property
    def layers(self) -> nn.ModuleList:
        return self.model.layers

    def describe(self, layer: Any) -> LayerParts:
        attention = layer.attn

        def see(hidden: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
            """Queries and keys, rotated to the rows' positions, and values, all of them made by one matrix."""
            if positions is None:
                positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
            q, k, v = attention.Wqkv(layer.attn_norm(hidden)).unflatten(2, (3, -1, attention.head_dim)).unbind(2)
            cos, sin = self.model.rotary_emb(hidden, positions, layer.attention_type)
            q, k = apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=2)
            return q.flatten(2), k.flatten(2), v.flatten(2)

        def mix(hidden: Tensor, attended: Tensor) -> Tensor:
            hidden = hidden + attention.out_drop(attention.Wo(attended))
            return hidden + layer.mlp(layer.mlp_norm(hidden))

        return LayerParts(
            itemgetter(0),
            itemgetter(1),
            itemgetter(2),
            attention.head_dim,
            mix,
            see,
            window=self.model.config.sliding_window if layer.attention_type == "sliding_attention" else None,
            dropout=attention.attention_dropout,
        )

    @property
    def last_modules(self) -> tuple[Any, ...]:
        return (self.model.final_norm,)

    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        return self.model.embeddings(input_ids=inputs.get("input_ids"), inputs_embeds=inputs.get("inputs_embeds"))

    def output(self, hidden: Any, hidden_states: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=hidden, hidden_states=hidden_states)

    def extend(self, whole: Any, max_length: int) -> None:
        """Rotary positions have no table: the configuration alone has to tell."""
        config = self.model.config
        config.max_position_embeddings = max(config.max_position_embeddings, max_length)
