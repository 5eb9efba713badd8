"""BERT and its relatives: BERT, MiniLM, ELECTRA, RoBERTa, XLM-RoBERTa, CamemBERT, and RoBERTa with pre-norm layers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vcc.hosts.families.host import (
    FamilyHost,
    Inputs,
    LayerParts,
    as_it_is,
    repeat_beyond,
    repeat_rows,
    table_size,
    token_places,
)

if TYPE_CHECKING:
    from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions


@dataclass(frozen=True)
class BertHost(FamilyHost):
    """Learned positions, for some of the family behind the rows that are kept for padding."""

    @property
    def layers(self) -> nn.ModuleList:
        return self.model.encoder.layer

    def describe(self, layer: Any) -> LayerParts:
        attention = layer.attention.self
        return LayerParts(
            attention.query,
            attention.key,
            attention.value,
            attention.attention_head_size,
            mix=lambda hidden, attended: layer.feed_forward_chunk(layer.attention.output(attended, hidden)),
            see=(lambda hidden, _: layer.attention.LayerNorm(varied(hidden))) if self.family.pre_norm else as_it_is,
            dropout=attention.dropout.p,
        )

    @property
    def last_modules(self) -> tuple[Any, ...]:
        return (self.model.LayerNorm,) if self.family.pre_norm else ()

    @property
    def first(self) -> int:
        """The first position's row in the table."""
        return self.model.embeddings.padding_idx + 1 if self.family.positions == "after padding" else 0

    @property
    def longest(self) -> int:
        return table_size(self.model.embeddings.position_embeddings) - self.first

    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        ids = inputs.get("position_ids") if places is None else places + self.first
        if ids is None:
            ids = self.own_positions(inputs)
        parts, words, types = self.model.embeddings, inputs.get("inputs_embeds"), inputs.get("token_type_ids")
        ids = repeat_beyond(ids.clamp(min=max(self.first - 1, 0)), self.first, table_size(parts.position_embeddings))
        words = parts.word_embeddings(inputs["input_ids"]) if words is None else words
        kinds = parts._modules.get("token_type_embeddings")
        if kinds is not None:
            # Where all tokens are of type 0, its row's gradient is a sum: not one addition per token to the same place.
            words = words + kinds(ids.new_zeros(1) if types is None else types)
        hidden = parts.dropout(parts.LayerNorm(words + parts.position_embeddings(ids)))
        project = self.model._modules.get("embeddings_project")  # ELECTRA, where embeddings are narrower
        return hidden if project is None else project(hidden)

    def own_positions(self, inputs: Inputs) -> Tensor:
        """Position ids as the family counts them."""
        tokens = inputs.get("input_ids")
        if self.family.positions != "after padding" or tokens is None:
            return token_places(inputs) + self.first
        padding = self.model.embeddings.padding_idx
        real = tokens.ne(padding).long()
        return real.cumsum(1) * real + padding

    def output(self, hidden: Any, hidden_states: Any) -> "BaseModelOutputWithPoolingAndCrossAttentions":
        from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

        pooler = self.model._modules.get("pooler")
        pooled = None if pooler is None else pooler(hidden)
        return BaseModelOutputWithPoolingAndCrossAttentions(
            last_hidden_state=hidden, pooler_output=pooled, hidden_states=hidden_states
        )

    def extend(self, whole: Any, max_length: int) -> None:
        """Repeat the learned positions; a table that is long enough stays as it is."""
        embeddings, size = self.model.embeddings, self.first + max_length
        if table_size(embeddings.position_embeddings) >= size:
            return
        embeddings.position_embeddings = repeat_rows(embeddings.position_embeddings, self.first, size)
        device = embeddings.position_embeddings.weight.device
        embeddings.position_ids = nn.Buffer(torch.arange(size, device=device)[None], persistent=False)
        if "token_type_ids" in embeddings._buffers:
            embeddings.token_type_ids = nn.Buffer(torch.zeros_like(embeddings.position_ids), persistent=False)
        self.model.config.max_position_embeddings = size


def varied(hidden: Tensor) -> Tensor:
    """Rows that a layer norm can take in float16, where its epsilon rounds to zero.

    A node that holds only padding is zero, and its gradient would be NaN. No token attends to such a row.
    """
    if hidden.dtype is not torch.float16:
        return hidden
    marks = torch.arange(hidden.shape[-1], device=hidden.device).remainder(2).to(hidden.dtype)
    return torch.where((hidden == 0).all(-1, keepdim=True), marks, hidden)
