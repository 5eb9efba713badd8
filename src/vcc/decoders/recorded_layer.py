"""`RecordedLayer`: the device part of a step of a `TreeLayer`.

It writes to the layer's storage and reads all of it, with fixed addresses and shapes. Counting is the Python part,
which a graph leaves out.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from vcc.decoders.attend import attend_tree
from vcc.decoders.layer import TreeLayer


@dataclass(frozen=True)
class StepState:
    """What changes between steps, the same for all layers; on the device, written in place."""

    place: Tensor  # (1,) the row that the new token gets
    live: Tensor  # (B, M) rows that hold tokens
    owner: Tensor  # (B,) the tree's sequence of each
    node_counts: Tensor  # (E,)

    @classmethod
    @torch.inference_mode(False)  # what is made in that mode could not be written to outside of it
    def like(cls, layer: TreeLayer) -> "StepState":
        device, live = layer.device, layer.rows.storage.live
        return cls(
            torch.zeros(1, dtype=torch.int64, device=device),
            torch.zeros(live.shape, dtype=torch.bool, device=device),
            torch.zeros(len(live), dtype=torch.int64, device=device),
            torch.zeros(len(layer.tree.lengths), dtype=torch.int32, device=device),
        )

    def load(self, layer: TreeLayer) -> None:
        """Copy the state of a layer."""
        self.live.copy_(layer.rows.labelled().live)
        every = torch.arange(len(self.live), device=self.live.device) % len(layer.tree.lengths)
        self.owner.copy_(every if layer.owner is None else layer.owner)
        self.node_counts.copy_(layer.tree.node_counts)


class RecordedLayer(DynamicLayer):
    """A layer of the cache that the recorded forward uses."""

    def __init__(self, layer: TreeLayer, state: StepState) -> None:
        self.rows, self.tree, self.settings = layer.rows.storage, layer.tree, layer.settings
        self.length, self.state = layer.length, state
        self.is_initialized = True

    def serves(self, layer: TreeLayer) -> bool:
        """Whether a layer's tokens are still where they were when this was made."""
        mine, its = self.tree, layer.tree
        parts = [(mine.keys, its.keys), (mine.values, its.values)]
        for name in ("key_means", "value_means", "spreads"):
            parts += zip(getattr(mine, name), getattr(its, name), strict=True)
        return self.rows is layer.rows.storage and all(a is b for a, b in parts)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.rows.keys.index_copy_(2, self.state.place, key_states)
        self.rows.values.index_copy_(2, self.state.place, value_states)
        return self.rows.keys, self.rows.values

    def holds(self, keys: Any) -> bool:
        return keys is self.rows.keys

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        """One query token (B, heads, 1, D) -> (B, 1, heads, D)."""
        batch, heads, _, width = query.shape
        grouped = query.view(batch, self.rows.keys.shape[1], -1, width)
        state, budget = self.state, self.settings.budgets
        assert budget is not None
        if query.device.type == "cuda":
            from vcc.decoders.kernels.step import step_kernel

            output = step_kernel(
                grouped, self.rows.keys, self.rows.values, state.live, self.tree, state.owner, budget, scaling,
                state.node_counts,
            )  # fmt: skip
        else:  # nothing is recorded there, but the same work can run
            visible = state.live[:, None, None].expand(-1, 1, grouped.shape[2], -1)
            output = attend_tree(
                grouped[:, :, None], self.rows.keys, self.rows.values, visible, self.tree, state.owner, self.settings,
                scaling, state.node_counts,
            ).output  # fmt: skip
        return output.reshape(batch, 1, heads, width)

    def get_seq_length(self) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0
