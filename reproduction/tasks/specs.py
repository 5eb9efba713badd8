"""The tasks and the ways to read a document, as tables: what is predicted, at which length, with which VIPs."""

from dataclasses import dataclass
from typing import Literal

from vcc.config import VccConfig

Kind = Literal["class", "choice", "tag"]
Layout = Literal["first", "chunks", "whole", "stretches"]
ROW = 512  # tokens of a chunk, of a truncated input, and of a stretch: the checkpoint's positions
NO_TAG_WEIGHT = 0.2  # of tokens without a tag in the loss: they are nine in ten and more
CHOICES = 4  # options of a multiple-choice question


@dataclass(frozen=True)
class LongTask:
    """One task at one length."""

    told: str  # what is predicted
    kind: Kind
    length: int  # tokens that are read at most, with the texts before the document and special tokens
    batch: int  # documents per optimizer step
    ways: tuple[str, ...]
    data: str = ""  # the packed file; unless given, the task's own name
    pieces: bool = False  # cut documents into consecutive pieces of `length`, all with the document's label
    time: float = 1.0  # training time, relative to the other tasks


@dataclass(frozen=True)
class ReadingWay:
    """How a document becomes rows of a model, and which of their tokens are VIPs."""

    told: str
    layout: Layout
    vips: str = ""  # in words; empty: not VCC

    @property
    def compressed(self) -> bool:
        return bool(self.vips)


PLAIN = ("truncated", "chunks", "vcc")
ALL = (*PLAIN, "vcc-stretches")
LONG_TASKS: dict[str, LongTask] = {
    "books-4k": LongTask("when a book was written, from 4,096 tokens", "class", 4096, 32, PLAIN, "books", pieces=True),
    "books-64k": LongTask("when a book was written, from 65,536 tokens", "class", 65_536, 8, ALL, "books", time=2.0),
    "contracts": LongTask("the type of a contract", "class", 32_768, 16, ALL),
    "pairs": LongTask("whether an agreement entails a statement", "class", 8192, 32, PLAIN),
    "tags": LongTask("which of ten clauses a token belongs to", "tag", 16_384, 8, ALL),
    "choices": LongTask("the right one of four answers on a tale", "choice", 8192, 32, PLAIN),
}
WAYS: dict[str, ReadingWay] = {
    "truncated": ReadingWay("the first 512 tokens", "first"),
    "chunks": ReadingWay("chunks of 512 tokens; mean and maximum of their states", "chunks"),
    "vcc": ReadingWay("VCC over the whole text", "whole", "CLS and the texts before the document"),
    "vcc-stretches": ReadingWay("VCC over the whole text, a CLS before each stretch of 510", "stretches", "each CLS"),
}


def compression(length: int) -> VccConfig:
    """The paper's settings by length. Short inputs are compressed too: otherwise they would not be VCC."""
    k, h = next((k, h) for most, k, h in ((16_384, 16, 90), (32_768, 32, 55), (2**62, 64, 30)) if length <= most)
    return VccConfig(scales=(k, 1), budget=(h,), window=ROW, dense_below=0)
