"""One encoder and one head for every way to read: only the rows and the compression differ."""

from typing import Any

import torch
from torch import Tensor, nn

from reproduction.tasks.rows import LongBatch
from reproduction.tasks.specs import NO_TAG_WEIGHT, Kind


class LongReader(nn.Module):
    """An encoder, the mean and the maximum of the states that are read for a prediction, and a linear layer.

    A truncated or compressed document has one such state, or one per stretch; chunks have one each. A choice has one
    per token of its own. Tags have one per token and are not pooled.
    """

    def __init__(self, encoder: Any, kind: Kind, labels: int) -> None:
        super().__init__()
        width = encoder.config.hidden_size
        self.encoder, self.kind = encoder, kind
        self.drop = nn.Dropout(0.1)
        outputs = {"class": labels, "choice": 1, "tag": labels + 1}[kind]
        self.head = nn.Linear(width if kind == "tag" else 2 * width, outputs)

    def forward(self, batch: LongBatch) -> Tensor:
        """(B, labels) or (B, choices); with tags (S, tags), one per token that is read."""
        hidden = self.encoder(**batch.inputs).last_hidden_state
        states = hidden.flatten(0, 1).index_select(0, batch.places)  # (S, D)
        full = self.head.weight.dtype  # autocast computes in 16 bits; sums and losses do not
        if self.kind == "tag":
            return self.head(self.drop(states)).to(full)
        logits = self.head(self.drop(pooled(states.to(full), batch.owners, batch.predictions))).to(full)
        return logits if self.kind == "class" else logits.view(len(batch.labels), -1)

    def loss(self, batch: LongBatch) -> Tensor:
        """The sum over predictions; with tags the weighted sum over tokens."""
        logits = self(batch)
        if self.kind != "tag":
            return nn.functional.cross_entropy(logits, batch.labels, reduction="sum")
        weight = logits.new_ones(logits.shape[1])
        weight[0] = NO_TAG_WEIGHT
        return nn.functional.cross_entropy(logits, batch.labels[batch.owners], weight, reduction="sum")


def pooled(states: Tensor, owners: Tensor, number: int) -> Tensor:
    """(S, D) states -> (number, 2D): the mean and the maximum over the states of each owner."""
    places = owners[:, None].expand_as(states)
    empty = states.new_zeros(number, states.shape[1])
    mean = empty.scatter_reduce(0, places, states, "mean", include_self=False)
    most = empty.scatter_reduce(0, places, states, "amax", include_self=False)
    return torch.cat([mean, most], dim=1)
