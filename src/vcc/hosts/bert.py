"""BERT and its relatives: BERT, MiniLM, ELECTRA, RoBERTa, XLM-RoBERTa, CamemBERT, and RoBERTa with pre-norm layers."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

from vcc.attention.attend import attend
from vcc.attention.scoring import Scoring
from vcc.core.rows import Rows
from vcc.core.score import vip_attention
from vcc.hosts.host import (
    FamilyHost,
    Inputs,
    checkpointed,
    in_type,
    merge_heads,
    repeat_beyond,
    repeat_rows,
    split_heads,
    token_places,
)


@dataclass(frozen=True)
class BertHost(FamilyHost):
    """Post-norm layers; learned positions that start at 0."""

    @property
    def num_layers(self) -> int:
        return len(self.model.encoder.layer)

    @property
    def longest(self) -> int:
        return self.model.embeddings.position_embeddings.num_embeddings - self.first

    @property
    def first(self) -> int:
        """The first position's row in the table."""
        return 0

    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        ids = inputs.get("position_ids") if places is None else places + self.first
        if ids is None:
            ids = self.own_positions(inputs)
        table = self.model.embeddings.position_embeddings
        ids = repeat_beyond(ids.clamp(min=max(self.first - 1, 0)), self.first, table.num_embeddings)
        parts, words, types = self.model.embeddings, inputs.get("inputs_embeds"), inputs.get("token_type_ids")
        words = parts.word_embeddings(inputs["input_ids"]) if words is None else words
        # Where all tokens are of type 0, its row's gradient is a sum: not one addition per token to the same place.
        kinds = parts.token_type_embeddings.weight[:1] if types is None else parts.token_type_embeddings(types)
        hidden = parts.dropout(parts.LayerNorm(words + kinds + table(ids)))
        project = self.model._modules.get("embeddings_project")  # ELECTRA, where embeddings are narrower
        return hidden if project is None else project(hidden)

    def own_positions(self, inputs: Inputs) -> Tensor:
        return token_places(inputs)

    def normed(self, layer: Any, hidden: Tensor) -> Tensor:
        """What the attention of a layer sees of its input."""
        return hidden

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        layer = self.model.encoder.layer[index]
        attention = layer.attention.self

        def run(hidden: Tensor) -> Tensor:
            seen = self.normed(layer, hidden)
            q, k, v = (
                split_heads(project(seen), attention.attention_head_size)
                for project in (attention.query, attention.key, attention.value)
            )
            dropout = attention.dropout.p if self.training else 0.0
            mixed = merge_heads(attend(q, k, v, rows, Scoring(dropout=dropout)))
            return layer.feed_forward_chunk(layer.attention.output(mixed, hidden))

        return checkpointed(layer, run, rows.hidden)

    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        layer = self.model.encoder.layer[index]
        attention = layer.attention.self
        size = attention.attention_head_size
        q = split_heads(attention.query(self.normed(layer, vips.hidden)), size)
        k = split_heads(attention.key(self.normed(layer, in_type(nodes, vips.hidden.dtype))), size)
        return vip_attention(q, k, vips, nodes, size**-0.5)

    def finish(self, hidden: Tensor) -> Tensor:
        return hidden

    def output(self, hidden: Any, hidden_states: Any) -> BaseModelOutputWithPoolingAndCrossAttentions:
        pooler = self.model._modules.get("pooler")
        pooled = None if pooler is None else pooler(hidden)
        return BaseModelOutputWithPoolingAndCrossAttentions(
            last_hidden_state=hidden, pooler_output=pooled, hidden_states=hidden_states
        )

    @staticmethod
    def extend(model: Any, max_length: int) -> None:
        extend_table(model.base_model, max_length, 0)


@dataclass(frozen=True)
class RobertaHost(BertHost):
    """The first positions of the table are kept for padding, which has a position of its own."""

    @property
    def first(self) -> int:
        return self.model.embeddings.padding_idx + 1

    def own_positions(self, inputs: Inputs) -> Tensor:
        embeddings = self.model.embeddings
        if inputs.get("input_ids") is not None:
            return embeddings.create_position_ids_from_input_ids(inputs["input_ids"], embeddings.padding_idx)
        return embeddings.create_position_ids_from_inputs_embeds(inputs["inputs_embeds"], embeddings.padding_idx)

    @staticmethod
    def extend(model: Any, max_length: int) -> None:
        extend_table(model.base_model, max_length, model.base_model.embeddings.padding_idx + 1)


@dataclass(frozen=True)
class RobertaPreNormHost(RobertaHost):
    """The paper's encoder: layers normalise what they read, and the model its last output."""

    def normed(self, layer: Any, hidden: Tensor) -> Tensor:
        return layer.attention.LayerNorm(hidden)

    def finish(self, hidden: Tensor) -> Tensor:
        return self.model.LayerNorm(hidden)


def extend_table(model: Any, max_length: int, first: int) -> None:
    """Repeat the learned positions up to `max_length` tokens; a table that is long enough stays as it is."""
    embeddings, size = model.embeddings, first + max_length
    if embeddings.position_embeddings.num_embeddings >= size:
        return
    embeddings.position_embeddings = repeat_rows(embeddings.position_embeddings, first, size)
    device = embeddings.position_embeddings.weight.device
    embeddings.position_ids = nn.Buffer(torch.arange(size, device=device)[None], persistent=False)
    embeddings.token_type_ids = nn.Buffer(torch.zeros_like(embeddings.position_ids), persistent=False)
    model.config.max_position_embeddings = size
