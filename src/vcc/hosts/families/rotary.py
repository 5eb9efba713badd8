"""Encoders with rotary positions at the rows' mean positions and one projection each for queries, keys and values:
NomicBERT, jina-embeddings-v3 and GTE, with post-norm layers, and EuroBERT, with pre-norm layers."""

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from transformers.utils import ModelOutput

from vcc.hosts.families.host import FamilyHost, Inputs, LayerParts


@dataclass(frozen=True)
class RotaryHost(FamilyHost):
    """Post-norm layers."""

    @property
    def layers(self) -> nn.ModuleList:
        return self.model.layers

    def describe(self, layer: Any) -> LayerParts:
        attention = layer.self_attn

        def see(hidden: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
            """Queries and keys, rotated to the rows' positions, and values."""
            if positions is None:
                positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
            hidden = self.before_attention(layer, hidden)
            projections = (attention.q_proj, attention.k_proj, attention.v_proj)
            q, k, v = (project(hidden).unflatten(2, (-1, attention.head_dim)) for project in projections)
            cos, sin = self.model.rotary_emb(hidden, positions)
            q, k = apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=2)
            groups = q.shape[2] // k.shape[2]  # queries that share a key
            return q.flatten(2), repeat_heads(k, groups).flatten(2), repeat_heads(v, groups).flatten(2)

        return LayerParts(
            itemgetter(0),
            itemgetter(1),
            itemgetter(2),
            attention.head_dim,
            lambda hidden, attended: self.after_attention(layer, hidden, attention.o_proj(attended)),
            see,
            dropout=attention.attention_dropout,
        )

    def before_attention(self, layer: Any, hidden: Tensor) -> Tensor:
        """What the layer does before its attention."""
        return hidden

    def after_attention(self, layer: Any, hidden: Tensor, attended: Tensor) -> Tensor:
        """The layer's output, from its input and the output of its attention."""
        hidden = layer.post_attention_layernorm(hidden + layer.post_attention_dropout(attended))
        return layer.post_mlp_layernorm(hidden + layer.post_mlp_dropout(layer.mlp(hidden)))

    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        names = ("input_ids", "token_type_ids", "inputs_embeds")
        return self.model.embeddings(**{name: inputs.get(name) for name in names})

    def output(self, hidden: Any, hidden_states: Any) -> ModelOutput:
        pooler = self.model._modules.get("pooler")
        pooled = None if pooler is None else pooler(hidden)
        return BaseModelOutputWithPooling(last_hidden_state=hidden, pooler_output=pooled, hidden_states=hidden_states)

    def extend(self, whole: Any, max_length: int) -> None:
        """Rotary positions have no table: only the configuration changes."""
        config = self.model.config
        config.max_position_embeddings = max(config.max_position_embeddings, max_length)


@dataclass(frozen=True)
class EuroBertHost(RotaryHost):
    """Pre-norm layers, in which several queries may share a key."""

    def before_attention(self, layer: Any, hidden: Tensor) -> Tensor:
        return layer.input_layernorm(hidden)

    def after_attention(self, layer: Any, hidden: Tensor, attended: Tensor) -> Tensor:
        hidden = hidden + attended
        return hidden + layer.mlp(layer.post_attention_layernorm(hidden))

    @property
    def last_modules(self) -> tuple[Any, ...]:
        return (self.model.norm,)

    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        embeds = inputs.get("inputs_embeds")
        return self.model.embed_tokens(inputs["input_ids"]) if embeds is None else embeds

    def output(self, hidden: Any, hidden_states: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=hidden, hidden_states=hidden_states)


def repeat_heads(states: Tensor, times: int) -> Tensor:
    """(B, n, H, d) -> (B, n, H * times, d), each head `times` times in a row."""
    return states if times == 1 else states.repeat_interleave(times, 2)
