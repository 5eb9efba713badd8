"""Practice in windows: a question and a passage that answers it, or not, as in a second look.

Half of the paragraphs are alone, the others among unrelated text; documents give any window around an answer. Some
questions get a passage of their own article or document that does not answer them. A teacher reads the same windows,
and its probabilities of starts and ends are learned beside the right ones. A window may be read a second time from a
later token on: what is said of the tokens of both should be the same.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from reproduction.loop import half_precision
from shipped_model.data import LOADERS, Ints, Span, TokenQuestion, TokenSets, Unit
from shipped_model.sources import SOURCES
from vcc.data.features import Frame

SIZE = 512  # tokens in a window
ALONE = 0.4  # share of paragraphs without surrounding text
NEIGHBOURS = 0.6  # of the others, the share among paragraphs of its own article
UNANSWERED = 0.25  # share of questions with a passage that does not answer them
ALIKE = 4  # paragraphs of an article, of which the one most like the question is taken
POOL = 2048  # lessons sorted by length, for little padding
TOKENS = 65_536  # in a batch
LATER = 128  # tokens of a passage that its later view may lack


Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Lesson:
    question: Ints
    passage: Ints
    spans: tuple[Span, ...]  # of the passage; none: it holds no answer

    def __len__(self) -> int:
        return len(self.question) + len(self.passage) + 3


@dataclass(frozen=True)
class Lessons:
    """Windows (W, n) for practice, with targets."""

    ids: Tensor
    mask: Tensor
    types: Tensor
    outside: Tensor  # (W, n) neither passage nor CLS
    right: Tensor  # (2, W, n) right starts and ends; the CLS token where there is none
    apart: Tensor  # (W,) whether these are several answers, not variants of one
    loader: int = 0  # the process that made it
    place: tuple[Any, int] = (None, 0)  # the state of the generator before its pool, and where it stands in the pool

    def tensors(self, device: torch.device) -> tuple[Tensor, ...]:
        parts = (self.ids, self.mask, self.types, self.outside, self.right, self.apart)
        return tuple(part.to(device, non_blocking=True) for part in parts)


@dataclass
class Practice(IterableDataset[Lessons]):
    """An endless stream of batches."""

    units: Mapping[str, Sequence[Unit]]  # by set
    shares: Mapping[str, float]  # how often a question of a set is practised
    filler: Sequence[Ints]  # running texts to put around paragraphs
    frame: Frame
    seed: int = 0
    alone: float = ALONE
    tokens: int = TOKENS
    taken: Mapping[int, tuple[Any, int]] = field(default_factory=dict)  # by loader, the place of its last batch
    turn: int = 0  # batches that were taken: the loaders take turns
    asked: dict[str, list[tuple[Unit, TokenQuestion]]] = field(init=False)
    owned: dict[str, dict[int, list[Unit]]] = field(init=False)

    def __post_init__(self) -> None:
        self.asked = {name: [(unit, q) for unit in self.units[name] for q in unit.questions] for name in self.shares}
        self.owned = {}
        for name in self.shares:
            owned = self.owned.setdefault(name, {})
            for unit in self.units[name]:
                owned.setdefault(unit.owner, []).append(unit)

    def __iter__(self) -> Iterator[Lessons]:
        worker = torch.utils.data.get_worker_info()
        loader = (worker.id + self.turn) % worker.num_workers if worker else 0
        chance, first = random.Random(self.seed + loader), 0
        if loader in self.taken:  # resuming: only one pool is made again
            state, last = self.taken[loader]
            chance.setstate(state)
            first = last + 1
        while True:
            state = chance.getstate()
            pool = sorted((self.lesson(chance) for _ in range(POOL)), key=len)
            batches: list[list[Lesson]] = [[]]
            for lesson in pool:
                if batches[-1] and (len(batches[-1]) + 1) * rounded(len(lesson)) > self.tokens:
                    batches.append([])
                batches[-1].append(lesson)
            chance.shuffle(batches)
            for i, batch in enumerate(batches[first:], first):
                yield replace(self.collate(batch), loader=loader, place=(state, i))
            first = 0

    def lesson(self, chance: random.Random) -> Lesson:
        names = list(self.shares)
        weights = [self.shares[name] * len(self.asked[name]) for name in names]
        while True:
            name = chance.choices(names, weights)[0]
            unit, question = chance.choice(self.asked[name])
            room = SIZE - 3 - len(question.ids)
            if room < SIZE // 4:
                continue
            if chance.random() < UNANSWERED or not question.spans:
                made = self.unanswered(name, unit, question, room, chance)
            elif len(unit.ids) > room:
                made = around_answer(unit, question, room, chance)
            else:
                made = self.paragraph(name, unit, question, room, chance)
            if made is not None:
                return made

    def unanswered(
        self, name: str, unit: Unit, question: TokenQuestion, room: int, chance: random.Random
    ) -> Lesson | None:
        """A passage of the same document or article that does not hold the answer but looks as if it could; the
        question's own paragraph where it is known to hold none."""
        if not question.spans and len(unit.ids) <= room:
            return self.paragraph(name, unit, question, room, chance)
        if len(unit.ids) <= room:
            others = [other for other in self.owned[name][unit.owner] if other is not unit]
            if not others:
                return None
            some = chance.sample(others, min(ALIKE, len(others)))
            passage = max(some, key=lambda other: len(np.intersect1d(question.ids, other.ids))).ids[:room]
        else:
            passage = unit.ids[(start := self.elsewhere(unit, question, room, chance)) : start + room]
        answers = [unit.ids[a : b + 1].astype(np.uint16).tobytes() for a, b in question.spans]
        text = passage.astype(np.uint16).tobytes()
        return None if any(answer in text for answer in answers) else Lesson(question.ids, passage, ())

    def elsewhere(self, unit: Unit, question: TokenQuestion, room: int, chance: random.Random) -> int:
        """Where a window of a document begins: anywhere, or around the answer to another question, which looks more
        like an answer than most of the document does."""
        last = len(unit.ids) - room
        others = [span for q in unit.questions if q is not question for span in q.spans]
        if not others or chance.random() < 0.5:
            return chance.randrange(last + 1)
        a, b = chance.choice(others)
        return min(max(chance.randint(min(b + 1 - room, a), a), 0), last)

    def paragraph(self, name: str, unit: Unit, question: TokenQuestion, room: int, chance: random.Random) -> Lesson:
        before: Ints = np.zeros(0, np.int32)
        after = before
        if chance.random() > self.alone:
            free = chance.randrange(room - len(unit.ids) + 1)
            first = chance.randrange(free + 1)
            text = self.neighbours(name, unit, question, chance)
            if text is None:
                text = chance.choice(self.filler)
                start = chance.randrange(max(len(text) - free, 1))
                before, after = text[start : start + first], text[start + first : start + free]
            else:
                before, after = text[: len(text) // 2][-first:] if first else before, text[len(text) // 2 :]
                after = after[: free - first]
        by = len(before)
        passage = np.concatenate([before, unit.ids, after])
        spans = tuple((a + by, b + by) for a, b in question.spans)
        return Lesson(question.ids, passage, spans)

    def neighbours(self, name: str, unit: Unit, question: TokenQuestion, chance: random.Random) -> Ints | None:
        """Two other paragraphs of the article, if they do not hold the answer, too."""
        article = self.owned[name][unit.owner]
        if len(article) < 3 or chance.random() > NEIGHBOURS:
            return None
        text = np.concatenate([other.ids for other in chance.sample(article, 3) if other is not unit][:2])
        words = text.astype(np.uint16).tobytes()
        answers = (unit.ids[a : b + 1].astype(np.uint16).tobytes() for a, b in question.spans)
        return None if any(answer in words for answer in answers) else text

    def collate(self, lessons: Sequence[Lesson]) -> Lessons:
        n, number, frame = rounded(max(map(len, lessons))), len(lessons), self.frame
        ids = np.zeros((number, n), np.int64)
        mask, types, outside = (np.zeros((number, n), bool) for _ in range(3))
        right = np.zeros((2, number, n), bool)
        apart = np.array([all_apart(lesson.spans) for lesson in lessons])
        for i, lesson in enumerate(lessons):
            row = np.concatenate([frame.before, lesson.question, frame.between, lesson.passage, frame.after])
            first = len(row) - len(frame.after) - len(lesson.passage)
            ids[i, : len(row)], mask[i, : len(row)], types[i, first : len(row)] = row, True, True
            outside[i, 1:first] = True
            outside[i, first + len(lesson.passage) :] = True
            for a, b in lesson.spans or ((-first, -first),):
                right[0, i, first + a] = right[1, i, first + b] = True
        of = torch.from_numpy
        return Lessons(of(ids), of(mask), of(types.astype(np.int64)), of(outside), of(right), of(apart))


def rounded(n: int) -> int:
    return min(-(-n // 32) * 32, SIZE)


def around_answer(unit: Unit, question: TokenQuestion, room: int, chance: random.Random) -> Lesson | None:
    """A window of a document, with one of the answers at any place in it."""
    a, b = chance.choice(question.spans)
    if b - a + 1 > room:
        return None
    start = chance.randint(max(b + 1 - room, 0), min(a, max(len(unit.ids) - room, 0)))
    inside = tuple((x - start, y - start) for x, y in question.spans if x >= start and y < start + room)
    return Lesson(question.ids, unit.ids[start : start + room], inside)


def practice_of(data: TokenSets, frame: Frame, clauses: float, tokens: int = TOKENS, seed: int = 0) -> Practice:
    """Practice windows from all sets; `clauses`: how often those of contracts, relative to SQuAD's questions."""
    shares = {f"{kind.name}_train": kind.share for kind in SOURCES} | {
        "squad2_train": 4.0,
        "cuad_train": clauses,
        "verdicts_train": 0.5,
    }
    shares = {name: share for name, share in shares.items() if name in data.units}
    others = [unit.ids for name in ("squad11_train", "medquad_train", "cuad_train") for unit in data.units[name]]
    filler = [data.books["train"].astype("int32"), np.concatenate(others)]
    return Practice(data.units, shares, filler, frame, seed * LOADERS, tokens=tokens)


def batches(stream: IterableDataset[Batch], workers: int) -> Iterator[Batch]:
    return iter(DataLoader(stream, batch_size=None, num_workers=workers, prefetch_factor=4 if workers else None))


def compile_layers(model: Any) -> None:
    for layer in model.base_model.encoder.layer:
        layer.compile(dynamic=True)


def all_apart(spans: Sequence[Span]) -> bool:
    """Whether there are several spans without overlaps."""
    edges = sorted(spans)
    return len(edges) > 1 and all(a[1] < b[0] for a, b in zip(edges, edges[1:], strict=False))


def places_loss(logs: Tensor, right: Tensor, each: Tensor) -> Tensor:
    """(W,) -log P(one of the right places) or, where `each` (W,) of them is to be found, the mean of -log P(place).

    logs, right (W, n). One of several answers is soon learned so well that nothing is left for the others.
    """
    one = -logs.masked_fill(~right, -torch.inf).logsumexp(1)
    every = -logs.masked_fill(~right, 0.0).sum(1) / right.sum(1).clamp(min=1)
    return torch.where(each, every, one)


@dataclass(frozen=True)
class Teacher:
    """A model that reads the same windows, and the share of what it says in the loss."""

    model: Any
    share: float

    def loss(self, hard: Tensor, logs: Tensor, said: Tensor) -> Tensor:
        """(W,) the loss of the right places mixed with the cross entropy of the teacher's logarithms `said` (W, n)."""
        return (1 - self.share) * hard - self.share * (said.exp() * logs.clamp(min=-1e4)).sum(1)


def later_view(window: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """The same windows (4, W, n), of ids, mask, types and `outside`, without the first tokens of their passages: at
    most LATER and none of an answer. Also for each place (W, n) of them its place in the whole window."""
    mask, types, outside = window[1:]
    passage = (types > 0) & (mask > 0) & (outside == 0)
    place = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    first = torch.where(passage, place, mask.shape[1]).amin(1)
    answers = right.any(0)
    before = torch.where(answers[:, 1:].any(1), answers.int().argmax(1) - first, passage.sum(1) // 2)
    by = (torch.rand(len(mask), device=mask.device) * (1 + before.clamp(0, LATER))).long()
    whole = torch.where(place < first[:, None], place, place + by[:, None])
    inside = whole < mask.shape[1]
    whole = whole.clamp(max=mask.shape[1] - 1)
    later = window.gather(2, whole.expand_as(window))
    later[:3] *= inside
    later[3] = torch.where(inside, later[3], 1)
    return later, whole


def agreement_loss(logs: Tensor, later: Tensor, whole: Tensor, outside: Tensor) -> Tensor:
    """(W,) how far what is said of the later view (W, n) is from what was said of the same tokens of the whole window:
    the divergence of both from their mean."""
    seen = logs.gather(1, whole).masked_fill(outside > 0, -1e4).log_softmax(1)
    both = torch.stack([seen, later])
    mean = (both.logsumexp(0) - math.log(2)).clamp(min=-1e4)
    return (both.exp() * (both - mean)).sum(2).mean(0)


def practice_loss(
    model: Any, lessons: Lessons, each: bool = False, teacher: Teacher | None = None, consistent: float = 0.0
) -> Tensor:
    """The loss of a batch. `each`: several answers are learned each. `consistent`: the weight of agreeing with oneself
    about a later view of the same windows."""
    ids, mask, types, outside, right, apart = lessons.tensors(model.device)

    def logs_of(reader: Any, ids: Tensor, mask: Tensor, types: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
        with half_precision(model.device):
            out = reader(input_ids=ids, attention_mask=mask, token_type_ids=types)
        start, end = (
            side.float().masked_fill(outside.bool(), -1e4).log_softmax(1) for side in (out.start_logits, out.end_logits)
        )
        return start, end

    window = ids, mask, types, outside
    logs = logs_of(model, *window)
    losses = [places_loss(one, places, apart & each) for one, places in zip(logs, right, strict=True)]
    if teacher is not None:
        with torch.no_grad():
            said = logs_of(teacher.model, *window)
        losses = [teacher.loss(*parts) for parts in zip(losses, logs, said, strict=True)]
    if consistent:
        later, whole = later_view(torch.stack([part.long() for part in window]), right)
        again = logs_of(model, *later)
        losses = [
            loss + consistent * agreement_loss(one, other, whole, later[3])
            for loss, one, other in zip(losses, logs, again, strict=True)
        ]
    return torch.stack(losses).mean()
