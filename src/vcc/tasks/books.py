"""Books as the text to hide things in, and where to hide them."""

import os
import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from vcc.data.haystack import Paragraphs
from vcc.data.records import load_records
from vcc.errors import UsageError

# What the options of every such task mean.
LENGTHS = "tokens per input; several are used in turn"
DEPTHS = "where it is hidden, 0 (start) to 1 (end); several are used in turn; random by default"
LONGEST = 10**8
SEED = "of what is hidden, where and in what"


def book_paragraphs(split: str, source: str | None) -> Paragraphs:
    """All paragraphs of the books of a split, book after book. A test split reads the validation books."""
    return _read_books("train" if split == "train" else "validation", source or os.environ.get("VCC_DATA"))


@lru_cache(maxsize=4)
def _read_books(split: str, source: str | None) -> Paragraphs:
    """Split paragraphs of more than 600 characters at sentence ends, so every depth has a gap near it."""
    records = load_records("books", split, source, hub="")
    return Paragraphs.of(
        [
            (str(i), piece)
            for i, record in enumerate(records)
            for part in re.split(r"\n\s*\n", record.get("text").replace("\r\n", "\n"))
            for piece in re.findall(r".{1,600}(?:(?<=[.!?])\s|$)|.+", part, re.DOTALL)
        ]
    )


def check_places(lengths: Sequence[int], depths: Sequence[float], seed: int) -> None:
    """Validate before the first example is made, which may take minutes."""
    if not lengths or min(lengths) < 32 or max(lengths) > LONGEST:
        rule = f"must be one or more numbers of tokens, each from 32 to {LONGEST:,}"
        raise UsageError(f"lengths {tuple(lengths)} {rule}")
    if not all(0 <= depth <= 1 for depth in depths):
        raise UsageError(f"depths {tuple(depths)} must lie in 0..1")
    if not 0 <= seed < 2**63:
        raise UsageError(f"seed {seed} must lie in 0..2^63 - 1")


def pick(i: int, lengths: Sequence[int], depths: Sequence[float], rng: np.random.Generator) -> tuple[int, float]:
    """The length and depth of example i: each length in turn, at each depth in turn (random by default)."""
    depth = depths[i // len(lengths) % len(depths)] if depths else float(rng.random())
    return lengths[i % len(lengths)], depth
