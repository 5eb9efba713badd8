"""Training data as token arrays: units (a contract, a paragraph) with questions, and pages made of units."""

import io
import lzma
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shipped_model.sources import SOURCES

Ints = NDArray[np.integer]
Span = tuple[int, int]  # first and last token, both included

LOADERS = 1000  # more than there are of a stream; each draws with its own number, so seeds are this far apart
SENTENCE_END = 1012  # "." in BERT's vocabulary
ASKED, REWORDED, TWISTED = 0, 1, 2  # as published; reworded; changed to be unanswerable
SUPPORTED, CONTRADICTED, ABSENT = 3, 4, 5  # statements, by their documents


@dataclass(frozen=True)
class TokenQuestion:
    ids: Ints
    spans: tuple[Span, ...]  # in its unit or page; empty: no answer
    kind: int = ASKED
    number: int = 0  # among all questions of its set
    near: int | None = None  # start of its own paragraph, which may contain no answer


@dataclass(frozen=True)
class Unit:
    """A self-contained piece of text, its questions, and its owner."""

    ids: Ints
    questions: tuple[TokenQuestion, ...]
    owner: int = 0


@dataclass(frozen=True)
class Page:
    """A document and the questions asked of it."""

    ids: Ints
    questions: tuple[TokenQuestion, ...]


@dataclass(frozen=True)
class TokenSets:
    """Everything a run needs, as tokens."""

    units: dict[str, tuple[Unit, ...]]  # by set: cuad_train, squad_train, ...
    books: dict[str, Ints]  # by split: running text to hide things in


# ---------------------------------------------------------------------------------------------------------------- files


def save(prepared: TokenSets, path: Path) -> None:
    """As flat arrays: 16 bits hold BERT's vocabulary."""
    arrays: dict[str, Ints] = {f"books/{split}": ids.astype(np.uint16) for split, ids in prepared.books.items()}
    for name, units in prepared.units.items():
        questions = [(u, q) for u, unit in enumerate(units) for q in unit.questions]
        spans = [(i, *span) for i, (_, q) in enumerate(questions) for span in q.spans]
        arrays |= {
            f"{name}/ids": np.concatenate([unit.ids for unit in units]).astype(np.uint16),
            f"{name}/sizes": np.array([len(unit.ids) for unit in units], np.int32),
            f"{name}/owners": np.array([unit.owner for unit in units], np.int32),
            f"{name}/asked": np.concatenate([q.ids for _, q in questions]).astype(np.uint16),
            f"{name}/asked_sizes": np.array([len(q.ids) for _, q in questions], np.int32),
            f"{name}/asked_of": np.array([u for u, _ in questions], np.int32),
            f"{name}/kinds": np.array([q.kind for _, q in questions], np.int8),
            f"{name}/spans": np.array(spans, np.int32).reshape(-1, 3),
        }
    with lzma.open(path, "wb") as file:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        file.write(buffer.getvalue())


def load(path: Path) -> TokenSets:
    with lzma.open(path) as file:
        arrays = dict(np.load(io.BytesIO(file.read())))
    books = {name.partition("/")[2]: ids for name, ids in arrays.items() if name.startswith("books/")}
    units: dict[str, tuple[Unit, ...]] = {}
    for name in sorted({key.partition("/")[0] for key in arrays} - {"books"}):
        part = {key.partition("/")[2]: value for key, value in arrays.items() if key.startswith(name + "/")}
        texts = np.split(part["ids"].astype(np.int32), np.cumsum(part["sizes"])[:-1])
        asked = np.split(part["asked"].astype(np.int32), np.cumsum(part["asked_sizes"])[:-1])
        spans: list[list[Span]] = [[] for _ in asked]
        for i, first, last in part["spans"].tolist():
            spans[i].append((first, last))
        questions: list[list[TokenQuestion]] = [[] for _ in texts]
        for i, (ids, unit, kind) in enumerate(zip(asked, part["asked_of"], part["kinds"], strict=True)):
            questions[unit].append(TokenQuestion(ids, tuple(spans[i]), int(kind), i))
        units[name] = tuple(
            Unit(ids, tuple(qs), int(owner)) for ids, qs, owner in zip(texts, questions, part["owners"], strict=True)
        )
    return TokenSets(units, books)


# ---------------------------------------------------------------------------------------------------------------- pages


@dataclass(frozen=True)
class Haystack:
    """Text to hide units in: passages of books and paragraphs of other articles, alternating."""

    book: Ints
    others: Sequence[Unit]

    def pieces(self, tokens: int, chance: random.Random, avoid: set[int]) -> Iterator[Ints]:
        """Passages up to `tokens` tokens, without paragraphs of owners to `avoid`."""
        left, order = tokens, chance.sample(range(len(self.others)), len(self.others))
        while left > 0:
            start = self.sentence(chance.randrange(len(self.book) - 8192))
            piece = self.book[start : start + min(left, chance.randrange(200, 4000))]
            yield piece
            left -= len(piece)
            for _ in range(chance.randrange(4, 12)):
                unit = self.others[order.pop()] if order else None
                if left > 0 and unit is not None and unit.owner not in avoid:
                    yield unit.ids[:left]
                    left -= len(unit.ids[:left])

    def sentence(self, place: int) -> int:
        """The first sentence of the books from here on."""
        ends = np.flatnonzero(self.book[place : place + 400] == SENTENCE_END)
        return place + (int(ends[0]) + 1 if len(ends) else 0)


def hide(units: Sequence[Unit], haystack: Haystack, length: int, chance: random.Random) -> tuple[Ints, list[int]]:
    """The units at random depths of a document of about `length` tokens, and the place of each."""
    missing = length - sum(len(unit.ids) for unit in units)
    pieces: list[Ints] = list(haystack.pieces(missing, chance, {unit.owner for unit in units}))
    parts: list[tuple[Ints, int | None]] = [(piece, None) for piece in pieces]
    for i, unit in enumerate(units):
        parts.insert(chance.randrange(len(parts) + 1), (unit.ids, i))
    starts, place = [0] * len(units), 0
    for ids, which in parts:
        if which is not None:
            starts[which] = place
        place += len(ids)
    return np.concatenate([ids for ids, _ in parts]), starts


def moved(question: TokenQuestion, by: int) -> TokenQuestion:
    return replace(question, spans=tuple((first + by, last + by) for first, last in question.spans), near=by)


@dataclass
class Mixture:
    """An endless stream of batches of pages of similar length: contracts, other whole documents, and paragraphs hidden
    in long documents.

    Pages grow while `progress` goes from 0 to 1: short texts are learned first, and fast.
    """

    prepared: TokenSets
    seed: int = 0
    contracts: float = 0.4  # the share of batches that are contracts
    documents: float = 0.2  # the share that are other whole documents
    tokens: int = 40_960  # in a batch
    rows: int = 160_000  # in a batch, in each compressed layer: about so many tokens are seen at once
    trees: int = 2_400_000  # tokens in the trees of a batch, one for each question
    shortest: int = 1_500  # the longest page at the start
    longest: int = 49_152  # and at the end
    grown: float = 0.5  # when
    progress: float = 0.0
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        units = self.prepared.units
        whole = [unit for kind in SOURCES if kind.whole for unit in units.get(f"{kind.name}_train", ())]
        self.contract_units = sorted(units["cuad_train"], key=lambda unit: len(unit.ids))
        self.document_units = sorted(whole, key=lambda unit: len(unit.ids))
        articles = units["squad11_train"] + units["squad2_train"]
        self.articles: dict[int, list[Unit]] = {}
        for unit in articles:
            self.articles.setdefault(unit.owner, []).append(unit)
        self.hops = [unit for name in ("hotpot_train", "musique_train") for unit in self.prepared.units[name]]
        self.haystack = Haystack(self.prepared.books["train"], articles)

    def __iter__(self) -> Iterator[list[Page]]:
        while True:
            drawn = self.chance.random()
            if drawn < self.contracts:
                yield self.whole_pages(self.contract_units)
            elif drawn < self.contracts + self.documents and self.document_units:
                yield self.whole_pages(self.document_units)
            else:
                yield self.hidden_pages()

    @property
    def limit(self) -> int:
        """The current maximum tokens of a page."""
        return int(self.shortest * (self.longest / self.shortest) ** min(self.progress / self.grown, 1.0))

    def asked(self, length: int) -> int:
        """Questions per batch of pages of this length."""
        return min(160, self.rows // min(length + 40, 2_700), self.trees // length)

    def whole_pages(self, by_length: Sequence[Unit]) -> list[Page]:
        first = self.chance.randrange(len(by_length))
        pages: list[Page] = []
        for unit in by_length[first : first + 12]:
            length = min(max([len(unit.ids), *(len(page.ids) for page in pages)]), self.limit)
            asked = sum(len(page.questions) for page in pages)
            if pages and (length * (len(pages) + 1) > self.tokens or asked + 12 > self.asked(length)):
                break
            pages.append(self.whole_page(unit))
        return pages

    def whole_page(self, unit: Unit) -> Page:
        """Equally many questions with and without an answer; long texts are cut to a part with an answer."""
        start, room = 0, self.limit
        if len(unit.ids) > room:
            spans = [span for q in unit.questions for span in q.spans] or [(0, 0)]
            start = self.chance.choice(spans)[0] - self.chance.randrange(room)
            start = max(0, min(start, len(unit.ids) - room))
        ids = unit.ids[start : start + room]
        questions: list[TokenQuestion] = []
        for q in unit.questions:  # one wording of each
            inside = tuple((a - start, b - start) for a, b in q.spans if a >= start and b < start + len(ids))
            if q.kind == REWORDED and questions:
                questions[-1] = replace(q, spans=inside) if self.chance.random() < 0.35 else questions[-1]
            else:
                questions.append(replace(q, spans=inside))
        there = [q for q in questions if q.spans]
        absent = [q for q in questions if not q.spans]
        there = self.chance.sample(there, min(len(there), 16))
        absent = self.chance.sample(absent, min(len(absent), max(len(there), 6)))
        return Page(ids, (*there, *absent))

    def hidden_pages(self) -> list[Page]:
        high = self.limit
        low = 16_384 if high > 16_384 and self.chance.random() < 0.3 else 200
        length = int(low * (high / low) ** self.chance.random())
        number = max(1, min(12, self.tokens // length))
        return [self.hidden_page(length, max(self.asked(length) // number, 8)) for _ in range(number)]

    def hidden_page(self, length: int, asked: int) -> Page:
        """Paragraphs of two articles with their questions, and questions whose paragraph is missing."""
        chance = self.chance
        pool = [unit for title in chance.sample(sorted(self.articles), 2) for unit in self.articles[title]]
        chance.shuffle(pool)
        units: list[Unit] = []
        if chance.random() < 0.25 and length > 6000:
            units += chance.sample(self.hops, 2)
        while pool and sum(len(unit.ids) for unit in units) < 0.7 * length and len(units) < asked // 4 + 1:
            units.append(pool.pop())
        if not units:
            units.append(pool.pop())
        ids, starts = hide(units, self.haystack, length, chance)
        there: list[TokenQuestion] = []
        twisted: list[TokenQuestion] = []
        for unit, start in zip(units, starts, strict=True):
            for q in unit.questions:
                (twisted if q.kind == TWISTED else there).append(moved(q, start))
        absent = [replace(q, spans=()) for unit in pool[:20] for q in unit.questions if q.kind == ASKED]
        wanted = max(1, asked // 10)
        chosen = chance.sample(there, min(len(there), asked - 2 * wanted))
        chosen += chance.sample(twisted, min(len(twisted), wanted))
        return Page(ids, (*chosen, *chance.sample(absent, min(len(absent), wanted))))
