"""SQuAD as token ids, so that loaders keep up with a GPU: paragraphs are tokenized once, and hidden ones are put
together from their ids.

Between two paragraphs there is only white space, which BERT's tokenizer drops: the ids of a joined text are the joined
ids.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from reproduction.small.pieces import PieceRule
from vcc.data.example import Example
from vcc.data.features import Features, Frame, Row, token_spans, tokenize_text, tokenize_texts
from vcc.errors import DataError

Ints = NDArray[Any]
QUESTIONS = "questions.npz"
DRAWN = 32  # filler paragraphs drawn together
QUESTION = 60  # tokens of the longest question; a few longer ones are cut
VIPS = 64  # with the special tokens around it


@dataclass(frozen=True)
class QuestionTokens:
    """All questions with their paragraphs. Those whose answer is lost in tokenization are left out."""

    paragraphs: Ints  # (N,) ids of all paragraphs
    paragraph_ends: Ints  # (P,)
    owners: Ints  # (P,) the article of each
    questions: Ints  # (M,) ids of all questions
    question_ends: Ints  # (Q,)
    about: Ints  # (Q,) the paragraph of each
    spans: Ints  # (Q, 2) first and last token of the answer in its paragraph

    @staticmethod
    def of(examples: Sequence[Example], tokenizer: Any) -> "QuestionTokens":
        known: dict[str, int] = {}
        owners, offsets, ids = [], [], []
        groups: dict[str, int] = {}
        for example in examples:
            if example.document not in known:
                known[example.document] = len(known)
                found = tokenize_text(example.document, tokenizer)
                ids.append(found.ids)
                offsets.append(found.offsets)
                owners.append(groups.setdefault(example.group, len(groups)))
        kept = []
        for i, example in enumerate(examples):
            places = token_spans(example.answer_spans, offsets[known[example.document]])
            if places:
                kept.append((i, known[example.document], *places[0]))
        if not kept:
            raise DataError("no question has an answer: some must have one")
        asked = tokenize_texts([examples[i].question for i, *_ in kept], tokenizer)
        return QuestionTokens(
            *joined(ids), np.asarray(owners), *joined(asked), np.asarray([one[1] for one in kept]),
            np.asarray([one[2:] for one in kept]),
        )  # fmt: skip

    def save(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file, **asdict(self))

    @staticmethod
    def load(file: Path) -> "QuestionTokens":
        with np.load(file) as held:
            return QuestionTokens(**held)

    def __len__(self) -> int:
        return len(self.about)

    def paragraph(self, number: int) -> Ints:
        return self.paragraphs[self.paragraph_ends[number - 1] if number else 0 : self.paragraph_ends[number]]

    def question(self, number: int) -> Ints:
        return self.questions[self.question_ends[number - 1] if number else 0 : self.question_ends[number]]


def joined(parts: Sequence[Ints]) -> tuple[Ints, Ints]:
    return np.concatenate(parts).astype(np.uint16), np.cumsum([len(part) for part in parts])


class HiddenQuestions(Dataset[Features]):
    """Draw d is question d % Q, its paragraph alone or, if `hidden`, at a random place among paragraphs of other
    articles that fill `length` tokens: another place and other ones in every epoch. `pieces`: some paragraphs each."""

    def __init__(
        self,
        tokens: QuestionTokens,
        frame: Frame,
        length: int,
        seed: int,
        hidden: bool,
        pieces: PieceRule | None = None,
    ) -> None:
        self.tokens, self.frame, self.length, self.seed, self.hidden = tokens, frame, length, seed, hidden
        self.pieces = pieces

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, draw: int) -> Features:
        tokens, frame, number = self.tokens, self.frame, draw % len(self.tokens)
        asked = tokens.question(number)[: min(QUESTION, self.length // 2)]
        vips = np.concatenate([frame.before, asked, frame.between])
        room = self.length - len(vips) - len(frame.after)
        about, rng, cut = int(tokens.about[number]), np.random.default_rng([self.seed, draw]), 0
        own = tokens.paragraph(about)
        if self.pieces is not None:
            cut = self.pieces.number(room if self.hidden else min(len(own), room), rng)
            room -= cut * self.pieces.special - len(frame.after)
        own = own[:room]
        first, last = tokens.spans[number]
        paragraphs, before = [own], 0
        if self.hidden:
            filler = self.filler(rng, room - len(own), int(tokens.owners[about]))
            place = int(rng.integers(len(filler) + 1))
            paragraphs, before = [*filler[:place], own, *filler[place:]], sum(map(len, filler[:place]))
        ids = np.concatenate([vips, *paragraphs, frame.after]).astype(np.int32)
        types = np.zeros_like(ids)
        types[len(vips) :] = frame.second_type
        moved = len(vips) + before
        spans = ((int(first) + moved, int(last) + moved),) if last < len(own) else ()
        row = Row(ids, types, np.broadcast_to(np.int32(-1), (len(ids), 2)), len(vips))
        features = Features(str(number), row, spans, tokens=len(ids))
        if self.pieces is None:
            return features
        return self.pieces.of(features, np.cumsum([len(one) for one in paragraphs]), cut, self.length, rng)

    def filler(self, rng: np.random.Generator, room: int, without: int) -> list[Ints]:
        """Random paragraphs of other articles, the last one cut, of `room` tokens in all."""
        taken: list[Ints] = []
        while room > 0:
            for number in rng.integers(len(self.tokens.owners), size=DRAWN):
                if self.tokens.owners[number] != without and room > 0:
                    taken.append(self.tokens.paragraph(int(number))[:room])
                    room -= len(taken[-1])
        return taken
