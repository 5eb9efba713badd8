"""Lay documents out as rows of an encoder, and rows as batches of a fixed shape.

    first       [CLS] texts [SEP] the first tokens [SEP]                               512 tokens
    chunks      [CLS] texts [SEP] some tokens [SEP], once for each chunk               512 tokens each
    whole       [CLS] texts [SEP] all tokens [SEP]                                     one long row
    stretches   [CLS] 510 tokens [SEP] [CLS] 510 tokens [SEP] ...                      one long row

The texts are a statement, or a question and its choices, each closed by a separator. A class is read from the CLS
tokens, a choice from its own tokens and the separator that closes it, tags from the document's tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reproduction.tasks.packed import LongItem
from reproduction.tasks.specs import NO_TAG_WEIGHT, ROW, Kind, Layout
from vcc.data.collate import pad_ids
from vcc.errors import ModelError

Ids = NDArray[np.int64]
Places = NDArray[np.int64]  # (P, 2): a token of the row, and the class, choice or tagged token that its state is for
Shape = tuple[int, int]  # rows, tokens in each


@dataclass(frozen=True)
class Specials:
    """The special tokens of a BERT-like tokenizer."""

    cls: int
    sep: int
    pad: int

    @staticmethod
    def of(tokenizer: Any) -> "Specials":
        found = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id)
        if None in found:
            raise ModelError(f"{type(tokenizer).__name__} must have the tokens CLS, SEP and PAD: these are {found}")
        return Specials(*found)


@dataclass(frozen=True)
class LaidRow:
    """One row: its tokens, the segment of each, which are VIPs, and which states are read for what."""

    ids: Ids
    types: Ids
    vips: Ids
    places: Places


def texts_of(item: LongItem, kind: Kind, layout: Layout) -> Sequence[Any]:
    """The texts before a document: the names of tags are there for VIPs only."""
    return item.asked if kind != "tag" or layout == "whole" else ()


def room_of(item: LongItem, kind: Kind, layout: Layout, row: int) -> int:
    """Tokens of the document that fit in one row."""
    before = 1 + sum(len(text) + 1 for text in texts_of(item, kind, layout))
    room = row - before - 1 if layout != "whole" else max(item.length, 1)
    if room < 1:
        raise ModelError(f"{before} tokens before a document do not fit in a row of {row}")
    return room


def lay(item: LongItem, kind: Kind, layout: Layout, specials: Specials, row: int = ROW) -> list[LaidRow]:
    """The rows of a document; chunks have several, every other layout one."""
    asked, room = texts_of(item, kind, layout), room_of(item, kind, layout, row)
    before = np.concatenate([[specials.cls], *(part for text in asked for part in (text, [specials.sep]))])
    stops = range(0, max(item.length, 1), room)
    rows = []
    for start in stops[:1] if layout == "first" else stops:
        document = item.document[start : start + room]
        ids = np.concatenate([before, document, [specials.sep]]).astype(np.int64)
        types = (np.arange(len(ids)) >= len(before)).astype(np.int64) * bool(asked)
        vips = (np.arange(len(ids)) < len(before)).astype(np.int64)
        rows.append(LaidRow(ids, types, vips, places(kind, asked, len(before), len(document), start)))
    return [end_to_end(rows)] if layout == "stretches" else rows


def places(kind: Kind, asked: Sequence[Any], first: int, tokens: int, start: int) -> Places:
    if kind == "class":
        return np.zeros((1, 2), dtype=np.int64)
    if kind == "tag":
        return np.arange(tokens)[:, None] + np.array([first, start])
    sizes = [len(text) + 1 for text in asked]  # with the separator behind it
    chosen = np.repeat(np.arange(-1, len(asked) - 1), sizes)  # -1: the question
    read = np.stack([1 + np.arange(len(chosen)), chosen], axis=1)
    return read[chosen >= 0].astype(np.int64)


def end_to_end(rows: Sequence[LaidRow]) -> LaidRow:
    """Rows as one: windows of their length in the first layers see exactly what chunks see."""
    starts = np.cumsum([0, *(len(row.ids) for row in rows[:-1])])
    read = [row.places + [start, 0] for start, row in zip(starts, rows, strict=True)]
    parts = ([row.ids for row in rows], [row.types for row in rows], [row.vips for row in rows], read)
    return LaidRow(*map(np.concatenate, parts))


@dataclass(frozen=True)
class LongBatch:
    """Rows of several items, and where their predictions are read."""

    inputs: dict[str, Tensor]  # of the encoder, each (R, n)
    places: Tensor  # (S,) the states that are read, numbered row after row
    owners: Tensor  # (S,) the prediction each counts for
    labels: Tensor  # one per item, or with tags one per prediction
    predictions: int
    number: float  # the sum of the loss's weights

    def each(self, change: Callable[[Tensor], Tensor]) -> "LongBatch":
        inputs = {name: change(value) for name, value in self.inputs.items()}
        places, owners, labels = map(change, (self.places, self.owners, self.labels))
        return LongBatch(inputs, places, owners, labels, self.predictions, self.number)

    def pin_memory(self) -> "LongBatch":
        return self.each(Tensor.pin_memory)

    def to(self, device: str) -> "LongBatch":
        return self.each(lambda value: value.to(device, non_blocking=True))


def collate(
    items: Sequence[LongItem], laid: Sequence[Sequence[LaidRow]], kind: Kind, vips: bool, pad: int, shape: Shape
) -> LongBatch:
    """One batch of laid items, padded to a shape: rows without an item have one token, which nothing reads.

    With tags, owners number the tokens of all documents, also those that no row holds.
    """
    size, n = shape
    rows: list[LaidRow] = []
    read: list[Ids] = []  # each (P, 2): place, prediction
    owned = 0
    for item, own in zip(items, laid, strict=True):
        for one in own:
            read.append(one.places + np.array([len(rows) * n, owned]))
            rows.append(one)
        owned += {"class": 1, "choice": len(item.asked) - 1, "tag": item.length}[kind]
    unused = LaidRow(rows[0].ids[:1], rows[0].types[:1], rows[0].vips[:1], rows[0].places[:0])  # CLS
    rows += [unused] * (size - len(rows))
    lengths = torch.tensor([len(one.ids) for one in rows])
    inputs = {
        "input_ids": pad_ids([one.ids for one in rows], pad, n),
        "attention_mask": (torch.arange(n) < lengths[:, None]).long(),
        "token_type_ids": pad_ids([one.types for one in rows], 0, n),
    }
    if vips:
        inputs["vip_mask"] = pad_ids([one.vips for one in rows], 0, n)
    labels = np.array([item.label for item in items]) if kind != "tag" else np.concatenate([one.tags for one in items])  # type: ignore[misc]
    place, owner = np.concatenate(read).T
    number = float(np.where(labels[owner] == 0, NO_TAG_WEIGHT, 1.0).sum()) if kind == "tag" else float(len(items))
    where = torch.from_numpy(place.copy()), torch.from_numpy(owner.copy())
    return LongBatch(inputs, *where, torch.from_numpy(labels), owned, number)
