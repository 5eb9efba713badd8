"""DeBERTa v2 and v3: disentangled attention, which compares contents with distances.

A score has three summands: the product of the contents, that of the query's content with an embedding of the distance
(c2p), and that of the key's content with another one (p2c). A row stands at the mean position of its tokens. The
distance of two rows is the difference of their positions, rounded to whole tokens, halves away from zero, and then
looked up as the distance of two tokens. Rows that stand for one token each are therefore at the distances of the
untouched model, and a segment is as far away as its middle.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from vcc.attention.scoring import distances
from vcc.errors import ModelError
from vcc.hosts.families.host import (
    FamilyHost,
    Inputs,
    LayerParts,
    repeat_beyond,
    repeat_rows,
    split_heads,
    table_size,
    token_places,
)


@dataclass(frozen=True)
class DebertaHost(FamilyHost):
    """Post-norm layers. Most checkpoints have no position embeddings, and no limit of length."""

    def __post_init__(self) -> None:
        if self.model.encoder.conv is not None:
            raise ModelError(
                f"conv_kernel_size is {self.model.config.conv_kernel_size}: it must be 0, because a convolution over "
                "neighbouring tokens is not defined for rows that stand for segments"
            )

    @property
    def layers(self) -> nn.ModuleList:
        return self.model.encoder.layer

    def describe(self, layer: Any) -> LayerParts:
        attention = layer.attention.self
        kinds = len({"c2p", "p2c"} & set(attention.pos_att_type))
        scale = 1 / rounded_to_float32(math.sqrt(attention.attention_head_size * (1 + kinds)))

        def bias(q: Tensor, k: Tensor, asking: Tensor, asked: Tensor) -> Tensor:
            return scale * self.distance_scores(attention, q, k, asking, asked)

        def mix(hidden: Tensor, attended: Tensor) -> Tensor:
            hidden = layer.attention.output(attended, hidden)
            return layer.output(layer.intermediate(hidden), hidden)

        return LayerParts(
            attention.query_proj,
            attention.key_proj,
            attention.value_proj,
            attention.attention_head_size,
            mix,
            scale=scale,
            bias=bias if attention.relative_attention and kinds else None,
            dropout=attention.dropout.p,
        )

    def distance_scores(self, attention: Any, q: Tensor, k: Tensor, asking: Tensor, asked: Tensor) -> Tensor:
        """c2p + p2c of queries (B, H, m, d) at positions (B, m) and keys (B, H, n, d) at (B, n): (B, H, m, n)."""
        table = attention.pos_dropout(self.distance_table(q.device))[None]  # (1, rows, D)
        index = self.distance_rows(attention, asking, asked)[:, None]  # (B, 1, m, n)
        shared, size, found = attention.share_att_key, attention.attention_head_size, []
        if "c2p" in attention.pos_att_type:
            keys = split_heads((attention.key_proj if shared else attention.pos_key_proj)(table), size)
            every = q @ keys.mT  # (B, H, m, rows)
            found.append(every.gather(3, index.expand(*every.shape[:3], -1)))
        if "p2c" in attention.pos_att_type:
            queries = split_heads((attention.query_proj if shared else attention.pos_query_proj)(table), size)
            every = k @ queries.mT  # (B, H, n, rows)
            found.append(every.gather(3, index.mT.expand(*every.shape[:3], -1)).mT)
        return sum(found[1:], found[0])

    def distance_table(self, device: torch.device) -> Tensor:
        """The embeddings of all distances (rows, D), which the layers share."""
        encoder = self.model.encoder
        table = encoder.rel_embeddings(torch.arange(table_size(encoder.rel_embeddings), device=device))
        return encoder.LayerNorm(table) if "layer_norm" in encoder.norm_rel_ebd else table

    def distance_rows(self, attention: Any, asking: Tensor, asked: Tensor) -> Tensor:
        """The row of the table for every distance of two positions (B, m) and (B, n): (B, m, n)."""
        distance = -distances(asking, asked)  # query - key
        size = (distance.abs() + 0.5).floor()
        if attention.position_buckets > 0 and attention.max_relative_positions > 0:
            size = log_bucket(size, attention.position_buckets // 2, attention.max_relative_positions)
        span = attention.pos_ebd_size
        return (distance.sign() * size + span).clamp(0, 2 * span - 1).long()

    @property
    def longest(self) -> int | None:
        table = self.model.embeddings.position_embeddings
        return None if table is None else table_size(table)

    @property
    def ignores_left_padding(self) -> bool:
        return self.longest is None

    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        ids = inputs.get("position_ids") if places is None else places
        ids = (token_places(inputs) if ids is None else ids).clamp(min=0)
        return self.model.embeddings(
            input_ids=inputs.get("input_ids"),
            token_type_ids=inputs.get("token_type_ids"),
            position_ids=ids if self.longest is None else repeat_beyond(ids, 0, self.longest),
            inputs_embeds=inputs.get("inputs_embeds"),
        )

    def output(self, hidden: Any, hidden_states: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=hidden, hidden_states=hidden_states)

    def extend(self, whole: Any, max_length: int) -> None:
        """Repeat the position embeddings, if there are any. Embeddings of distances stay: the last one is for all
        that are further."""
        embeddings, encoder, config = self.model.embeddings, self.model.encoder, self.model.config
        if max_length <= config.max_position_embeddings:
            return
        if self.longest is not None:
            embeddings.position_embeddings = repeat_rows(embeddings.position_embeddings, 0, max_length)
        places = torch.arange(max_length, device=embeddings.position_ids.device)
        embeddings.position_ids = nn.Buffer(places[None], persistent=False)
        if encoder.relative_attention:  # unless the configuration has it, this follows from the number of positions
            config.max_relative_positions = encoder.max_relative_positions
        config.max_position_embeddings = max_length


def log_bucket(size: Tensor, exact: int, most: int) -> Tensor:
    """The bucket of each distance: its own up to `exact`, then logarithmic, with 2 * exact - 1 for `most` - 1."""
    share = (size.clamp(min=exact) / exact).log() / math.log((most - 1) / exact)
    # A distance on the border of two buckets is in the lower one, however the logarithm was rounded.
    return torch.where(size <= exact, size, (share * (exact - 1) - 1e-4).ceil() + exact)


def rounded_to_float32(value: float) -> float:
    """The nearest number with 24 bits. Hugging Face keeps the scale of the scores in float32, in float64 models too."""
    upper = value * (2.0**29 + 1)
    return upper - (upper - value)
