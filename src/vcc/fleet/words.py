"""Rank the documents of a collection by the words they share with a question: BM25 over tokens, memory-mapped.

Nodes show what a document is about; names are found by spelling. Each pair of a token and a document that contains
it is a row, sorted by token: a question reads only the rows of its own tokens.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer]

SATURATION, LENGTH = 1.2, 0.75  # BM25's k1 and b
FILES = ("tokens", "documents", "counts", "lengths")


@dataclass(frozen=True, eq=False)
class WordTable:
    """Rows of `tokens`, `documents` and `counts` (r,), sorted by token, and `lengths` (d,) of the documents."""

    tokens: Ints
    documents: Ints
    counts: Ints
    lengths: Ints

    @classmethod
    def of(cls, documents: Iterable[Ints]) -> "WordTable":
        rows: list[tuple[Ints, Ints, Ints]] = []
        lengths: list[int] = []
        for number, ids in enumerate(documents):
            tokens, counts = np.unique(ids, return_counts=True)
            rows.append((tokens.astype(np.int32), np.full(len(tokens), number, np.int32), counts.astype(np.int32)))
            lengths.append(len(ids))
        tokens, owners, counts = (np.concatenate(part) for part in zip(*rows, strict=True))
        order = np.argsort(tokens, kind="stable")
        return cls(tokens[order], owners[order], counts[order], np.array(lengths, np.int32))

    def save(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for name in FILES:
            np.save(folder / f"{name}.npy", getattr(self, name))

    @classmethod
    def load(cls, folder: Path) -> "WordTable":
        return cls(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in FILES))

    def best(self, question: Ints, wanted: int) -> list[int]:
        """The documents that match a question's tokens best, best first, without those that match none."""
        scores = np.zeros(len(self.lengths))
        relative = 1 - LENGTH + LENGTH * self.lengths / max(self.lengths.mean(), 1)
        for token in np.unique(question):
            first, last = np.searchsorted(self.tokens, [token, token + 1])
            owners, counts = self.documents[first:last], self.counts[first:last]
            rarity = np.log1p((len(scores) - len(owners) + 0.5) / (len(owners) + 0.5))
            scores[owners] += rarity * counts * (SATURATION + 1) / (counts + SATURATION * relative[owners])
        order = np.argsort(-scores, kind="stable")[:wanted]
        return [int(number) for number in order if scores[number] > 0]
