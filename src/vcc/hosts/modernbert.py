"""ModernBERT: rotary positions at the rows' mean positions; its local layers keep their window, by real position."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

from vcc.attention.attend import attend
from vcc.attention.scoring import Scoring
from vcc.core.rows import Rows
from vcc.core.score import vip_attention
from vcc.hosts.host import FamilyHost, Inputs, checkpointed, in_type, merge_heads


@dataclass(frozen=True)
class ModernBertHost(FamilyHost):
    """Pre-norm layers, some of which attend only to rows nearby."""

    @property
    def num_layers(self) -> int:
        return len(self.model.layers)

    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        return self.model.embeddings(input_ids=inputs.get("input_ids"), inputs_embeds=inputs.get("inputs_embeds"))

    def project(self, layer: Any, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys, rotated to the rows' positions, and values: (B, H, r, d) each."""
        attention = layer.attn
        q, k, v = (
            part.transpose(1, 2)
            for part in attention.Wqkv(layer.attn_norm(hidden)).unflatten(2, (3, -1, attention.head_dim)).unbind(2)
        )
        cos, sin = self.model.rotary_emb(hidden, positions, layer.attention_type)
        return *apply_rotary_pos_emb(q, k, cos, sin), v

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        layer = self.model.layers[index]
        local = layer.attention_type == "sliding_attention"
        # Only distances matter. Neighbours are counted from the first, so that a window does not depend on its place.
        positions = torch.arange(len(rows), device=rows.hidden.device)[None] if consecutive else rows.positions

        def run(hidden: Tensor) -> Tensor:
            q, k, v = self.project(layer, hidden, positions)
            mixed = attend(
                q,
                k,
                v,
                rows,
                Scoring(
                    window=self.model.config.sliding_window if local else None,
                    consecutive=consecutive,
                    dropout=layer.attn.attention_dropout if self.training else 0.0,
                ),
            )
            hidden = hidden + layer.attn.out_drop(layer.attn.Wo(merge_heads(mixed)))
            return hidden + layer.mlp(layer.mlp_norm(hidden))

        return checkpointed(layer, run, rows.hidden)

    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        """Local layers score without their window: which segments matter does not depend on how far they are."""
        layer = self.model.layers[index]
        q = self.project(layer, vips.hidden, vips.positions)[0]
        k = self.project(layer, in_type(nodes, vips.hidden.dtype), nodes.positions)[1]
        return vip_attention(q, k, vips, nodes, layer.attn.head_dim**-0.5)

    def finish(self, hidden: Tensor) -> Tensor:
        return self.model.final_norm(hidden)

    def output(self, hidden: Any, hidden_states: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=hidden, hidden_states=hidden_states)

    @staticmethod
    def extend(model: Any, max_length: int) -> None:
        """Rotary positions have no table: the configuration alone has to tell."""
        model.config.max_position_embeddings = max(model.config.max_position_embeddings, max_length)
