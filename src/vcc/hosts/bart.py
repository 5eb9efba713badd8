"""BART and Pegasus: their layers run as they are, with log(counts) as the attention mask."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import BaseModelOutput

from vcc.core.rows import Rows, log_counts
from vcc.core.score import vip_attention
from vcc.hosts.host import FamilyHost, Inputs, in_type, repeat_beyond, repeat_rows, split_heads, token_places


@dataclass(frozen=True)
class BartHost(FamilyHost):
    """Post-norm layers; learned positions behind two rows that are never used."""

    @property
    def num_layers(self) -> int:
        return len(self.model.layers)

    @property
    def longest(self) -> int:
        return self.model.embed_positions.num_embeddings - self.first

    @property
    def first(self) -> int:
        return self.model.embed_positions.offset

    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        embeds = inputs.get("inputs_embeds")
        if embeds is None:
            embeds = self.tokens(inputs["input_ids"])
        hidden = self.normed_embedding(embeds + self.positions(token_places(inputs) if places is None else places))
        return F.dropout(hidden, self.model.dropout, self.training)

    def tokens(self, input_ids: Tensor) -> Tensor:
        return self.model.embed_tokens(input_ids)

    def positions(self, places: Tensor) -> Tensor:
        """The rows of the table for these places; padding, which nobody sees, takes the first."""
        table = self.model.embed_positions
        ids = repeat_beyond(places.clamp(min=0) + self.first, self.first, table.num_embeddings)
        return F.embedding(ids, table.weight)

    def normed_embedding(self, hidden: Tensor) -> Tensor:
        return self.model.layernorm_embedding(hidden)

    def normed(self, layer: Any, hidden: Tensor) -> Tensor:
        """What the attention of a layer sees of its input."""
        return hidden

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        if self.training and self.model.layerdrop and float(torch.rand([])) < self.model.layerdrop:
            return rows.hidden
        return self.model.layers[index](rows.hidden, log_counts(rows.counts, rows.hidden.dtype)[:, None, None])

    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        layer = self.model.layers[index]
        attention, size = layer.self_attn, layer.self_attn.head_dim
        q = split_heads(attention.q_proj(self.normed(layer, vips.hidden)), size)
        k = split_heads(attention.k_proj(self.normed(layer, in_type(nodes, vips.hidden.dtype))), size)
        return vip_attention(q, k, vips, nodes, size**-0.5)

    def finish(self, hidden: Tensor) -> Tensor:
        return hidden

    def output(self, hidden: Any, hidden_states: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=hidden, hidden_states=hidden_states)

    @staticmethod
    def extend(model: Any, max_length: int) -> None:
        for module in table_owners(model):
            size = module.embed_positions.offset + max_length
            if module.embed_positions.num_embeddings < size:
                longer = repeat_rows(module.embed_positions, module.embed_positions.offset, size)
                module.embed_positions.weight = longer.weight
                module.embed_positions.num_embeddings = size
                module.config.max_position_embeddings = max_length


@dataclass(frozen=True)
class PegasusHost(BartHost):
    """Pre-norm layers; sinusoids for positions, which go on beyond any table."""

    @property
    def first(self) -> int:
        return 0

    def tokens(self, input_ids: Tensor) -> Tensor:
        return self.model.embed_tokens(input_ids) * self.model.embed_scale

    def positions(self, places: Tensor) -> Tensor:
        table = self.model.embed_positions.weight
        return F.embedding(places.clamp(min=0), longer_sinusoids(table, places.shape[1]))

    def normed_embedding(self, hidden: Tensor) -> Tensor:
        return hidden

    def normed(self, layer: Any, hidden: Tensor) -> Tensor:
        return layer.self_attn_layer_norm(hidden)

    def finish(self, hidden: Tensor) -> Tensor:
        return self.model.layer_norm(hidden)

    @staticmethod
    def extend(model: Any, max_length: int) -> None:
        for module in table_owners(model):
            table = module.embed_positions
            if table.num_embeddings < max_length:
                table.weight = nn.Parameter(longer_sinusoids(table.weight, max_length), requires_grad=False)
                table.num_embeddings = max_length
                module.config.max_position_embeddings = max_length


def table_owners(model: Any) -> list[Any]:
    """Encoder and decoder: their configuration has one length for both tables."""
    return [module for module in model.modules() if "embed_positions" in module._modules]


def longer_sinusoids(table: Tensor, length: int) -> Tensor:
    """Pegasus's table, with rows added up to `length`: sines in the first half, cosines in the second."""
    size, width = table.shape
    if size >= length:
        return table
    half = torch.arange((width + 1) // 2, dtype=torch.float64, device=table.device)
    angle = torch.arange(size, length, device=table.device)[:, None] * 10000 ** (-2 * half / width)
    return torch.cat([table, torch.cat([angle.sin(), angle[:, : width // 2].cos()], 1).to(table.dtype)])
