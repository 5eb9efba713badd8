"""BART, with post-norm layers and learned positions, and Pegasus, with pre-norm layers and sinusoids."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import BaseModelOutput

from vcc.hosts.families.host import (
    FamilyHost,
    Inputs,
    LayerParts,
    as_it_is,
    below_infinity,
    repeat_beyond,
    repeat_rows,
    token_places,
)


@dataclass(frozen=True)
class BartHost(FamilyHost):
    """Learned positions stand behind two rows that are never used; sinusoids go on beyond any table."""

    @property
    def layers(self) -> nn.ModuleList:
        return self.model.layers

    def describe(self, layer: Any) -> LayerParts:
        attention, pre_norm = layer.self_attn, self.family.pre_norm

        def mix(hidden: Tensor, attended: Tensor) -> Tensor:
            hidden = hidden + self.dropout(attention.out_proj(attended), layer.dropout)
            if not pre_norm:
                hidden = layer.self_attn_layer_norm(hidden)
            inner = layer.activation_fn(layer.fc1(layer.final_layer_norm(hidden) if pre_norm else hidden))
            hidden = hidden + self.dropout(layer.fc2(self.dropout(inner, layer.activation_dropout)), layer.dropout)
            return below_infinity(hidden if pre_norm else layer.final_layer_norm(hidden))

        return LayerParts(
            attention.q_proj,
            attention.k_proj,
            attention.v_proj,
            attention.head_dim,
            mix,
            see=(lambda hidden, _: layer.self_attn_layer_norm(hidden)) if pre_norm else as_it_is,
            dropout=attention.dropout,
        )

    def dropout(self, hidden: Tensor, probability: float) -> Tensor:
        return F.dropout(hidden, probability, self.training)

    @property
    def last_modules(self) -> tuple[Any, ...]:
        return (self.model.layer_norm,) if self.family.pre_norm else ()

    @property
    def layer_drop(self) -> float:
        return self.model.layerdrop

    @property
    def sinusoids(self) -> bool:
        return self.family.positions == "sinusoids"

    @property
    def longest(self) -> int:
        return self.rows_of(self.model.embed_positions)

    def rows_of(self, table: Any) -> int:
        return table.num_embeddings - (0 if self.sinusoids else table.offset)

    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        model, embeds = self.model, inputs.get("inputs_embeds")
        if embeds is None:
            embeds = model.embed_tokens(inputs["input_ids"])
            embeds = embeds * model.embed_scale if self.sinusoids else embeds  # BART's tokens are scaled already
        # Padding, which nobody sees, takes the first place.
        places = token_places(inputs) if places is None else places.clamp(min=0)
        hidden = embeds + self.positions(places)
        return self.dropout(hidden if self.sinusoids else model.layernorm_embedding(hidden), model.dropout)

    def positions(self, places: Tensor) -> Tensor:
        """Position embeddings of places (B, n)."""
        table = self.model.embed_positions
        if not self.sinusoids:
            return table(None, position_ids=repeat_beyond(places, 0, self.longest))[0]
        every = table(None, position_ids=torch.arange(self.longest, device=places.device))
        return F.embedding(places, longer_sinusoids(every, places.shape[1]))

    def output(self, hidden: Any, hidden_states: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=hidden, hidden_states=hidden_states)

    def extend(self, whole: Any, max_length: int) -> None:
        """Encoder and decoder: their configuration has one length for both tables."""
        for module in whole.modules():
            table = module._modules.get("embed_positions")
            if table is None or max_length <= self.rows_of(table):
                continue
            if self.sinusoids:
                table.weight = nn.Parameter(longer_sinusoids(table.weight, max_length), requires_grad=False)
            else:
                table.weight = repeat_rows(table, table.offset, table.offset + max_length).weight
            table.num_embeddings = len(table.weight)
            module.config.max_position_embeddings = max_length


def longer_sinusoids(table: Tensor, length: int) -> Tensor:
    """Pegasus's table, with rows added up to `length`: sines in the first half, cosines in the second."""
    size, width = table.shape
    if size >= length:
        return table
    half = torch.arange((width + 1) // 2, dtype=torch.float64, device=table.device)
    angle = torch.arange(size, length, device=table.device)[:, None] * 10000 ** (-2 * half / width)
    return torch.cat([table, torch.cat([angle.sin(), angle[:, : width // 2].cos()], 1).to(table.dtype)])
