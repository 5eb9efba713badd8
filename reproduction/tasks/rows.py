"""Lay documents out as rows of an encoder.

    first       [CLS] texts [SEP] the first tokens [SEP]                               512 tokens
    chunks      [CLS] texts [SEP] some tokens [SEP], once for each chunk               512 tokens each
    whole       [CLS] texts [SEP] all tokens [SEP]                                     one long row
    stretches   [CLS] 510 tokens [SEP] [CLS] 510 tokens [SEP] ...                      one long row

The texts are a statement, or a question and its choices, each closed by a separator. A class is read from the CLS
tokens, a choice from the separators that close it, tags from the document's tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reproduction.tasks.packed import LongItem
from reproduction.tasks.specs import ROW, Kind, Layout, ReadingWay
from vcc.data.collate import pad_ids
from vcc.errors import ModelError

Ids = NDArray[np.int64]
Places = NDArray[np.int64]  # (P, 2): a token of the row, and the class, choice or tagged token that its state is for


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


def lay(item: LongItem, kind: Kind, layout: Layout, specials: Specials, row: int = ROW) -> list[LaidRow]:
    """The rows of a document; chunks have several, every other layout one."""
    asked = item.asked if kind != "tag" or layout == "whole" else ()
    before = np.concatenate([[specials.cls], *(part for text in asked for part in (text, [specials.sep]))])
    room = row - len(before) - 1 if layout != "whole" else max(len(item.document), 1)
    if room < 1:
        raise ModelError(f"{len(before)} tokens before a document do not fit in a row of {row}")
    stops = range(0, max(len(item.document), 1), room)
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
    closing = np.cumsum([len(text) + 1 for text in asked])[1:]  # the separator of each choice
    return np.stack([closing, np.arange(len(closing))], axis=1).astype(np.int64)


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
    rows: Tensor  # (S,) row of each state that is read
    tokens: Tensor  # (S,) its token
    owners: Tensor  # (S,) the prediction it counts for
    labels: Tensor  # one per item, or with tags one per prediction
    predictions: int

    def to(self, device: str) -> "LongBatch":
        def move(value: Tensor) -> Tensor:
            return value.pin_memory().to(device, non_blocking=True) if device == "cuda" else value

        inputs = {name: move(value) for name, value in self.inputs.items()}
        places = (move(self.rows), move(self.tokens), move(self.owners))
        return LongBatch(inputs, *places, labels=move(self.labels), predictions=self.predictions)


def collate(items: Sequence[LongItem], kind: Kind, way: ReadingWay, specials: Specials, row: int = ROW) -> LongBatch:
    """One batch. With tags, owners number the tokens of all documents, also those that no row holds."""
    rows: list[LaidRow] = []
    read: list[Ids] = []  # each (P, 3): row, token, prediction
    owned = 0
    for item in items:
        for laid in lay(item, kind, way.layout, specials, row):
            read.append(np.insert(laid.places + [0, owned], 0, len(rows), axis=1))
            rows.append(laid)
        owned += {"class": 1, "choice": len(item.asked) - 1, "tag": item.length}[kind]
    lengths = torch.tensor([len(one.ids) for one in rows])
    n = int(lengths.max())
    inputs = {
        "input_ids": pad_ids([one.ids for one in rows], specials.pad, n),
        "attention_mask": (torch.arange(n) < lengths[:, None]).long(),
        "token_type_ids": pad_ids([one.types for one in rows], 0, n),
    }
    if way.compressed:
        inputs["vip_mask"] = pad_ids([one.vips for one in rows], 0, n)
    labels = np.array([item.label for item in items]) if kind != "tag" else np.concatenate([one.tags for one in items])  # type: ignore[misc]
    row_of, token_of, owner_of = torch.from_numpy(np.concatenate(read)).unbind(1)
    return LongBatch(inputs, row_of, token_of, owner_of, torch.from_numpy(labels), owned)


def batches(items: Sequence[LongItem], tokens: int) -> Iterator[list[int]]:
    """Numbers of items of similar length, together at most this many tokens after padding; all items once."""
    some: list[int] = []
    for i in sorted(range(len(items)), key=lambda i: items[i].length):
        if some and (len(some) + 1) * items[i].length > tokens:
            yield some
            some = []
        some.append(i)
    if some:
        yield some
