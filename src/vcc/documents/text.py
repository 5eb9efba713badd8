"""A text as a value: its characters, parts (pages, chapters, sections, files) and sentences."""

import bisect
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from vcc.documents.boxes import Box, Word, line_boxes
from vcc.printable import printable

# Invisible characters that only change offsets: byte-order mark, soft hyphen, zero-width marks.
INVISIBLE = dict.fromkeys((0xFEFF, 0x00AD, 0x200B, 0x2060, 0x200E, 0x200F))
LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]")  # and direction overrides
MOST_MARKS = 30  # per letter, as in Unicode's stream-safe text format
LONGEST_LABEL = 300  # characters

SENTENCE_END = re.compile(r"""[.!?][."')\]”’]*\s+(?=["'“‘(\[]*[A-Z0-9])|\n[^\S\n]*\n\s*""")
ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|Rev|Hon|Capt|Col|Gen|No|Nos|Inc|Ltd|Co|Corp|Art|Sec|Fig|vs|cf|e\.g|i\.e)"
    r"|\b[A-Z]|^\s*\(?[\dIVXivx]{1,4}(?:\.\d+)*)\.\s*$",
    re.MULTILINE,
)
INSTALL = "pip install 'vcc-transformers[documents]'"  # for PDF and PNG
BELOW = " · "  # between the names of a part and its parent
BEGINNING = "beginning"  # label of the text before the first heading
SENTENCE_REACH = 500  # characters searched on each side of a span; legal sentences can fill a page


@dataclass(frozen=True)
class Part:
    """A stretch of the text with a name for readers: "page 3", "Chapter 2: The Inn", or "" for none."""

    label: str
    start: int
    end: int


@dataclass(frozen=True)
class Text:
    """The text of a file, with parts that cover it in order without gaps."""

    text: str
    title: str
    source: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()  # what could not be read, for the user to see
    words: tuple[Word, ...] = ()  # with their boxes, in the order of the text; for PDFs

    def __post_init__(self) -> None:
        edges = [0, *(part.end for part in self.parts)]
        if [part.start for part in self.parts] != edges[:-1] or edges[-1] != len(self.text):
            raise ValueError(f"parts must cover 0..{len(self.text)} in order without gaps, got {self.parts[:5]}...")

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def part_at(self, offset: int) -> Part:
        """The part that holds the character at `offset`; the end of the text belongs to the last part."""
        if not 0 <= offset <= len(self.text):
            raise ValueError(f"offset {offset} must lie in 0..{len(self.text)}")
        return self.parts[max(bisect.bisect_right(self.parts, offset, key=lambda part: part.start) - 1, 0)]

    def boxes(self, start: int, end: int) -> tuple[Box, ...]:
        """The boxes of text[start:end], one per line; none if the text has no pages."""
        first = bisect.bisect_right(self.words, start, key=lambda word: word.end)
        last = bisect.bisect_left(self.words, end, key=lambda word: word.start)
        return line_boxes(self.words[first:last])

    def sentence_around(self, start: int, end: int) -> tuple[int, int]:
        """The sentences that contain text[start:end]; overlong ones are cut at a word."""
        if not 0 <= start <= end <= len(self.text):
            raise ValueError(f"span {start}..{end} must lie in 0..{len(self.text)}")
        low, high = max(start - SENTENCE_REACH, 0), min(end + SENTENCE_REACH, len(self.text))
        before = [low + stop for _, stop in sentence_ends(self.text[low : start + 1]) if low + stop <= start]
        # Include one character of the span: it may end with its sentence's full stop.
        after = [max(end - 1, start) + stop for stop, _ in sentence_ends(self.text[max(end - 1, start) : high])]
        first = before[-1] if before else _next_word(self.text, low, start)
        last = after[0] if after else _previous_word(self.text, high, end)
        return first, max(last, end)


@dataclass(frozen=True)
class Pieces:
    """The result of reading a file: (label, text) in reading order, the file's own title, and notes."""

    pieces: tuple[tuple[str, str], ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    words: tuple[tuple[Word, ...], ...] = ()  # of each piece, counted from its start; or none at all


Spanned = TypeVar("Spanned")


def without_overlaps(spans: Iterable[Spanned], edges: Callable[[Spanned], tuple[int, int]]) -> Iterator[Spanned]:
    """Drop values that overlap an earlier kept one; `edges` gives the first and last + 1 character of each."""
    kept: list[tuple[int, int]] = []
    for span in spans:
        start, end = edges(span)
        if all(end <= first or last <= start for first, last in kept):
            kept.append((start, end))
            yield span


def sentence_ends(text: str) -> Iterator[tuple[int, int]]:
    """For each sentence end in `text`: where the sentence stops and where the next one starts."""
    for match in SENTENCE_END.finditer(text):
        head = text[max(match.start() - 12, 0) : match.start() + 1]
        if text[match.start()] == "\n" or not ABBREVIATION.search(head):
            yield match.start() + len(match.group().rstrip()), match.end()


def _next_word(text: str, low: int, start: int) -> int:
    """The start of the first word that begins in low..start."""
    space = None if low == 0 else re.compile(r"\s+").search(text, low, start)
    first = space.end() if space else low
    return first + len(text[first:start]) - len(text[first:start].lstrip())


def _previous_word(text: str, high: int, end: int) -> int:
    """The end of the last whole word in end..high."""
    tail = text[end:high] if high == len(text) else text[end:high].rpartition(" ")[0]
    return end + len(tail.rstrip())


def normalise(text: str) -> str:
    """Normalise a text: offsets then mean the same on every system. Applying it twice changes nothing.

    Line ends become newlines and form feeds paragraph breaks; invisible and control characters are removed; ligatures
    are spelled out; trailing blanks and repeated blank lines are removed.
    """
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # PDFs can contain half a surrogate pair
    text = re.sub(r"\r\n?|[\u2028\u0085]", "\n", text)
    text = re.sub(r"[\f\v\u2029]", "\n\n", text).translate(INVISIBLE | LIGATURES)
    text = CONTROL.sub("", text).replace("\xa0", " ")
    if not text.isascii():
        # Sorting the marks of one letter takes quadratic time; letters of any script have only a few.
        text = marks().sub(r"\1", unicodedata.normalize("NFC", marks().sub(r"\1", text)))
    text = "\n".join(line.rstrip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


@cache
def marks() -> re.Pattern[str]:
    """More combining marks in a row than a letter can have; the group matches those to keep."""
    combining = unicodedata.combining
    found = [chr(c) for c in range(0x300, 0x20000) if all(map(combining, unicodedata.normalize("NFD", chr(c))))]
    return re.compile(f"([{''.join(found)}]{{{MOST_MARKS}}})[{''.join(found)}]+")


def join_pieces(pieces: Iterable[tuple[str, str]]) -> tuple[str, tuple[Part, ...]]:
    """Join labelled pieces into one normalised text with parts, without empty pieces."""
    return _joined([(label, normalise(piece)) for label, piece in pieces])


def join_read(read: Pieces) -> tuple[str, tuple[Part, ...], tuple[Word, ...]]:
    """The same for all pieces of a file, with word offsets in the whole text."""
    bodies = [(label, normalise(piece)) for label, piece in read.pieces]
    text, parts = _joined(bodies)
    return text, parts, tuple(_placed_words(read, [body for _, body in bodies], parts)) if read.words else ()


def _joined(bodies: Iterable[tuple[str, str]]) -> tuple[str, tuple[Part, ...]]:
    filled = [(label, body) for label, body in bodies if body]
    if len(filled) > 1 and not filled[0][0]:
        filled[0] = (BEGINNING, filled[0][1])
    parts, start = [], 0
    for index, (label, body) in enumerate(filled):
        end = start + len(body) + (2 if index + 1 < len(filled) else 0)  # the blank line belongs to the part before it
        parts.append(Part(shown_label(label), start, end))
        start = end
    return "\n\n".join(body for _, body in filled), tuple(parts)


def _placed_words(read: Pieces, bodies: Iterable[str], parts: Iterable[Part]) -> Iterator[Word]:
    pieces = zip((piece for _, piece in read.pieces), read.words, bodies, strict=True)
    filled = (one for one in pieces if one[-1])
    for (piece, words, body), part in zip(filled, parts, strict=False):
        if body == piece:  # else the words' offsets may have changed
            yield from (word._replace(start=part.start + word.start, end=part.start + word.end) for word in words)


def shown_label(label: str) -> str:
    """A short printable line."""
    words = printable(" ".join(normalise(label[: 10 * LONGEST_LABEL]).split()))
    return words if len(words) <= LONGEST_LABEL else words[: LONGEST_LABEL - 1] + "…"
