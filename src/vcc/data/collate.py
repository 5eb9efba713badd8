"""Collate features of any length into one padded batch: the keyword arguments of a Hugging Face model, and two more.

input_ids, attention_mask and vip_mask are (B, n), and:

| head | more inputs | labels | for the loss only |
|---|---|---|---|
| span | | start_positions, end_positions (B,) | spans (B, S, 2), padded with -100 |
| choice | choice_tokens (B, C) | labels (B,) | choice_mask (B, C): False where an example has fewer choices |
| text | | labels (B, t), padded with -100 | |

The last column is for `vcc.data.losses`, not for the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vcc.data.example import Head
from vcc.data.features import Features, Row
from vcc.errors import ModelError

IGNORED = -100


@dataclass(frozen=True)
class Collator:
    """Pads to the longest row of the batch, rounded up to a multiple. `NULL_POSITION` (0) means no answer."""

    head: Head
    pad_id: int
    multiple: int = 1
    token_types: bool = False  # whether the model takes token_type_ids

    @staticmethod
    def of(tokenizer: Any, head: Head, multiple: int = 1) -> "Collator":
        if tokenizer.pad_token_id is None:
            raise ModelError(f"{type(tokenizer).__name__} has no pad token: set tokenizer.pad_token first")
        return Collator(head, tokenizer.pad_token_id, multiple, "token_type_ids" in tokenizer.model_input_names)

    def __call__(self, features: Sequence[Features]) -> dict[str, Tensor]:
        if self.multiple < 1:
            raise ValueError(f"multiple {self.multiple} must be at least 1")
        n = -(-max(one.length for one in features) // self.multiple) * self.multiple
        batch = self._rows([one.row for one in features], n)
        if self.head == "choice":
            return batch | self._choices(features)
        if self.head == "text":
            batch["labels"] = pad_ids([one.target_ids for one in features if one.target_ids is not None], IGNORED)
            return batch
        first = [one.spans[0] if one.spans else (NULL_POSITION, NULL_POSITION) for one in features]
        batch["start_positions"] = torch.tensor([span[0] for span in first])
        batch["end_positions"] = torch.tensor([span[1] for span in first])
        batch["spans"] = pad_spans([one.spans for one in features])
        return batch

    def _choices(self, features: Sequence[Features]) -> dict[str, Tensor]:
        numbers = torch.tensor([len(one.row.choice_tokens) for one in features])  # (B,)
        return {
            "choice_tokens": pad_ids([one.row.choice_tokens for one in features]),
            "choice_mask": torch.arange(int(numbers.max())) < numbers[:, None],
            "labels": torch.tensor([IGNORED if one.label is None else one.label for one in features]),
        }

    def _rows(self, rows: Sequence[Row], n: int) -> dict[str, Tensor]:
        lengths = torch.tensor([len(row.input_ids) for row in rows])  # (B,)
        vips = torch.tensor([row.vip_count for row in rows])  # (B,)
        places = torch.arange(n)
        batch = {
            "input_ids": pad_ids([row.input_ids for row in rows], self.pad_id, n),
            "attention_mask": (places < lengths[:, None]).long(),
            "vip_mask": (places < vips[:, None]).long(),
        }
        if self.token_types:
            batch["token_type_ids"] = pad_ids([row.token_type_ids for row in rows], 0, n)
        return batch


NULL_POSITION = 0  # the start and end of "no answer": CLS, or the first VIP of T5


def pad_ids(rows: Sequence[Any], value: int = 0, n: int | None = None) -> Tensor:
    """(B, n) int64, each row padded with `value`; n defaults to the longest row's length."""
    out = np.full((len(rows), max(len(row) for row in rows) if n is None else n), value, dtype=np.int64)
    for b, row in enumerate(rows):
        out[b, : len(row)] = row
    return torch.from_numpy(out)


def pad_spans(rows: Sequence[Sequence[tuple[int, int]]]) -> Tensor:
    """(B, S, 2) the first and last tokens of each row's spans, padded with `IGNORED`; S is at least 1."""
    out = torch.full((len(rows), max([1, *map(len, rows)]), 2), IGNORED)
    for b, spans in enumerate(rows):
        if spans:
            out[b, : len(spans)] = torch.tensor(spans)
    return out
