"""Long texts in pieces, as in the code of VCC's authors: each has special tokens and a token type of its own, its id.

Positions are repeated; ids tell a place from those that have the same position. A piece has at most as many tokens as
there are positions, and at least a quarter: 8 to 32 pieces of 4,096 tokens.

    masked words   [CLS] piece [SEP] [CLS] piece [SEP]                         cut anywhere, and shuffled
    a task         [CLS] question [SEP] [CLS] piece [SEP] [CLS] piece [SEP]    cut where lines begin, in their order

A task's pieces are not shuffled here, so that an answer stays one stretch of the text even if a piece begins inside it.
Where the order means nothing, the data is drawn in another order already: hidden paragraphs, those of HotpotQA.
"""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from vcc.data.collate import pad_ids
from vcc.data.example import Example, Head
from vcc.data.features import ExampleTokenizer, Features, Frame, Row
from vcc.data.pretrain import Masked, MaskedLM

Ints = NDArray[Any]
TYPES = 128  # ids, and the type 0 of the question
SMALLEST = 4  # pieces in as many tokens as there are positions, at most


@dataclass(frozen=True)
class PieceRule:
    """How texts are cut. `positions`: those of the host, which repeat after that many tokens."""

    frame: Frame
    positions: int

    @property
    def special(self) -> int:
        """Special tokens of each piece."""
        return len(self.frame.before) + len(self.frame.after)

    def number(self, tokens: int, rng: np.random.Generator) -> int:
        """Of pieces for so many tokens, special ones among them."""
        fewest = -(-max(tokens, 1) // self.positions)
        return int(rng.integers(fewest, max(fewest, tokens * SMALLEST // self.positions) + 1))

    def ids(self, number: int, rng: np.random.Generator) -> Ints:
        """An id for each piece; none occurs twice before all have occurred."""
        return np.resize(rng.permutation(np.arange(1, TYPES)), number)

    def of(self, features: Features, begins: Ints, number: int, length: int, rng: np.random.Generator) -> Features:
        """The document of a row in so many pieces that begin near some of `begins`, tokens of it; in fewer if several
        would begin at one. The end that no longer fits in `length` tokens is cut."""
        row, frame = features.row, self.frame
        vips, end = row.vip_count, len(row.input_ids) - len(frame.after)
        kept = min(end - vips, max(length - vips - number * self.special, 0))
        document, cuts = slice(vips, vips + kept), cut_near(begins, kept, number)
        ids, offsets = np.split(row.input_ids[document], cuts), np.split(row.offsets[document], cuts)
        types = np.repeat(self.ids(len(ids), rng), [len(piece) + self.special for piece in ids])
        nowhere = (np.full((len(some), 2), -1, dtype=np.int32) for some in (frame.before, frame.after))
        new = Row(
            np.concatenate([row.input_ids[:vips], framed(ids, frame.before, frame.after)]),
            np.concatenate([row.token_type_ids[:vips], types]),
            np.concatenate([row.offsets[:vips], framed(offsets, *nowhere)]),
            vips, row.choice_tokens,
        )  # fmt: skip

        def moved(token: int) -> int:
            before = int(np.searchsorted(cuts, token - vips, side="right"))  # pieces
            return token + before * self.special + len(frame.before)

        inside = tuple((moved(first), moved(last)) for first, last in features.spans if last < vips + kept)
        return replace(
            features, row=new, spans=inside, cut_tokens=features.cut_tokens + end - vips - kept,
            cut_answers=features.cut_answers + len(features.spans) - len(inside),
        )  # fmt: skip


def framed(pieces: Sequence[Ints], before: Any, after: Any) -> Ints:
    """Something about the tokens of all pieces, and about the special tokens around each."""
    return np.concatenate([part for piece in pieces for part in (before, piece, after)])


def cut_near(begins: Ints, tokens: int, number: int) -> Ints:
    """Where all pieces but the first begin: after equal parts, or where something begins within half a part of it."""
    even = np.round(np.arange(1, number) * tokens / number).astype(int)
    if len(begins):
        nearest = begins[np.abs(begins - even[:, None]).argmin(1)]
        even = np.where(np.abs(nearest - even) <= tokens / number / 2, nearest, even)
    return np.unique(even[(even > 0) & (even < tokens)])


class PieceTokenizer(ExampleTokenizer):
    """Turns examples into features whose documents are in pieces, the same ones every time."""

    def __init__(self, tokenizer: Any, head: Head, max_length: int, pieces: PieceRule) -> None:
        super().__init__(tokenizer, head, max_length)
        self.pieces = pieces

    def __call__(self, example: Example) -> Features:
        features = super().__call__(example)
        document = features.row.offsets[features.row.offsets[:, 0] >= 0]
        rng = np.random.default_rng(zlib.crc32(example.id.encode()))
        number = self.pieces.number(len(document), rng)
        return self.pieces.of(features, line_begins(example.document, document), number, self.max_length, rng)


def line_begins(text: str, offsets: Ints) -> Ints:
    """The tokens with a line break between them and the one before."""
    breaks = np.asarray([found.start() for found in re.finditer("\n", text)], dtype=int)
    lines = np.searchsorted(breaks, offsets[:, 0])
    return np.flatnonzero(np.diff(lines, prepend=lines[:1]))


@dataclass(frozen=True)
class MaskedPieces(Masked):
    """A sequence with tokens hidden, and the id of each token's piece."""

    token_type_ids: Ints


@dataclass(frozen=True)
class PermutedWords:
    """Masked words in a text whose pieces are shuffled."""

    words: MaskedLM
    pieces: PieceRule

    def raw_length(self, length: int) -> int:
        """With the fewest pieces; with more, the end of the text makes room for their special tokens."""
        return length - self.pieces.special * -(-length // self.pieces.positions)

    def hide_words(self, tokens: Ints, rng: np.random.Generator) -> MaskedPieces:
        frame, special = self.pieces.frame, self.pieces.special
        length = len(tokens) + special * -(-len(tokens) // self.pieces.positions)
        number = self.pieces.number(length, rng)
        text = tokens[: length - number * special]
        parts = np.split(text, cut_near(np.zeros(0, dtype=int), len(text), number))
        shuffled = [parts[i] for i in rng.permutation(number)]
        inner = framed(shuffled, frame.before, frame.after)
        found = self.words.hide_words(inner[len(frame.before) : len(inner) - len(frame.after)], rng)
        types = np.repeat(self.pieces.ids(number, rng), [len(part) + special for part in shuffled])
        return MaskedPieces(found.input_ids, found.vip_mask, found.labels, found.in_place, types)


def collate_types(items: Sequence[Any], n: int) -> dict[str, Tensor]:
    """The token types of a batch of sequences in pieces; nothing for others."""
    given = [item.token_type_ids for item in items if isinstance(item, MaskedPieces)]
    return {"token_type_ids": pad_ids(given, 0, n)} if given else {}


def with_types(model: PreTrainedModel) -> PreTrainedModel:
    """The model with room for all ids. Each starts as the type of a document, moved a little: equal ones would not tell
    pieces apart, and would learn to only by chance."""
    embeddings: Any = model.base_model.embeddings  # type: ignore[union-attr]
    old = embeddings.token_type_embeddings.weight.data
    moved = torch.randn(TYPES - 1, old.shape[1], generator=torch.Generator().manual_seed(0))
    rows = torch.cat([old[:1], old[-1] + model.config.initializer_range * moved.to(old)])
    embeddings.token_type_embeddings = nn.Embedding.from_pretrained(rows, freeze=False)
    model.config.type_vocab_size = TYPES
    return model
