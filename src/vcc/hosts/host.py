"""What every family of hosts shares: heads of attention, positions, gradient checkpointing."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from vcc.core.rows import Rows
from vcc.encode import Host

Inputs = Mapping[str, Any]  # the arguments of a Hugging Face forward, by name


@dataclass(frozen=True)
class FamilyHost(Host):
    """The adapter around the Hugging Face module that owns a family's encoder layers."""

    model: Any

    @property
    def training(self) -> bool:
        return bool(self.model.training)

    @abstractmethod
    def embed(self, inputs: Inputs, places: Tensor | None) -> Tensor:
        """Token embeddings (B, n, D). `places` (B, n) are positions to use instead of the family's own, where the
        family has position embeddings; -1 marks padding."""

    @abstractmethod
    def finish(self, hidden: Tensor) -> Tensor:
        """What the model does after its last layer, to (B, n, D)."""

    @abstractmethod
    def output(self, hidden: Any, hidden_states: Any) -> ModelOutput:
        """The family's own output, from the last hidden state (B, n, D) and a tuple of all of them or None.

        Hugging Face types these as FloatTensor, which mypy does not take a Tensor for.
        """

    @property
    def longest(self) -> int | None:
        """Tokens the position table has rows for; None: no such limit."""
        return None

    @staticmethod
    def extend(model: Any, max_length: int) -> None:
        """Give a whole wrapped model room for `max_length` positions; families without a table need nothing."""


def split_heads(projected: Tensor, head_size: int) -> Tensor:
    """(B, n, H * d) -> (B, H, n, d)."""
    return projected.unflatten(2, (-1, head_size)).transpose(1, 2)


def merge_heads(attended: Tensor) -> Tensor:
    """(B, H, n, d) -> (B, n, H * d)."""
    return attended.transpose(1, 2).flatten(2)


def checkpointed(layer: Any, run: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
    """run(hidden), recomputed in the backward pass where the user turned gradient checkpointing on for this layer."""
    if layer.gradient_checkpointing and layer.training:
        return layer._gradient_checkpointing_func(run, hidden)
    return run(hidden)


def token_places(inputs: Inputs) -> Tensor:
    """0 .. n - 1 for every token, (B, n)."""
    tokens = inputs["input_ids"] if inputs.get("input_ids") is not None else inputs["inputs_embeds"]
    batch, n = tokens.shape[:2]
    return torch.arange(n, device=tokens.device).expand(batch, n)


def repeat_beyond(ids: Tensor, first: int, size: int) -> Tensor:
    """Position ids for a table of `size` rows that starts counting at `first`: beyond its end it repeats, as the
    paper extends RoBERTa's embeddings by duplicating them."""
    return torch.where(ids < size, ids, first + (ids - first) % (size - first))


def repeat_rows(table: nn.Embedding, first: int, size: int) -> nn.Embedding:
    """A copy of a position table with `size` rows, the rows from `first` on repeated as often as needed."""
    old = table.weight
    index = repeat_beyond(torch.arange(size, device=old.device), first, old.shape[0])
    longer = nn.Embedding(size, old.shape[1], table.padding_idx, device=old.device, dtype=old.dtype)
    longer.weight = nn.Parameter(old.detach()[index].clone(), requires_grad=old.requires_grad)
    return longer


def in_type(rows: Rows, dtype: torch.dtype) -> Tensor:
    """The rows' hidden states in the model's own precision."""
    return rows.hidden.to(dtype)
