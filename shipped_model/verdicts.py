"""Learn whether a passage supports a statement, contradicts it or does not mention it.

A linear head on the CLS state of a window `[CLS] statement [SEP] passage [SEP]`, the same window as in a second look.
Statements are the hypotheses of ContractNLI, with the clauses that decide them; sentences of paragraphs as they stand
or with one answer of the article exchanged for another; and questions followed by a right or a wrong answer.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from reproduction.loop import half_precision
from shipped_model.data import (
    ABSENT,
    CONTRADICTED,
    LOADERS,
    SENTENCE_END,
    SUPPORTED,
    Ints,
    TokenQuestion,
    Unit,
)
from shipped_model.practice import SIZE, around_answer, batches, rounded
from vcc.data.features import Frame
from vcc.qa.verdicts import FILE, judge, window_states
from vcc.qa.windows import WindowReader, batch

HYPOTHESES = "verdicts_train"
PARAGRAPHS = ("squad11_train", "nq_train", "afriqa_train", "squadshifts_train", "qamr_train")
KINDS = (SUPPORTED, CONTRADICTED, ABSENT)
TOKENS = 32_768  # in a batch
POOL = 1024  # lessons sorted by length
HYPOTHESIS_SHARE = 0.5
SHORTEST = 5  # tokens of a sentence


class JudgedStatement(NamedTuple):
    statement: Ints
    passage: Ints
    verdict: int  # an index of KINDS


class Judgements(NamedTuple):
    ids: Tensor
    mask: Tensor
    types: Tensor
    verdicts: Tensor  # (W,)


@dataclass
class StatementStream(IterableDataset[Judgements]):
    """Endless batches of statements and passages."""

    units: Mapping[str, Sequence[Unit]]
    frame: Frame
    tokens: int = TOKENS
    seed: int = 0
    hypotheses: list[list[tuple[Unit, TokenQuestion]]] = field(init=False)  # by kind
    paragraphs: list[tuple[Unit, Sequence[Unit]]] = field(init=False)  # with the others of the same article

    def __post_init__(self) -> None:
        asked = [(unit, q) for unit in self.units.get(HYPOTHESES, ()) for q in unit.questions]
        self.hypotheses = [[one for one in asked if one[1].kind == kind] for kind in KINDS]
        self.paragraphs = []
        for name in PARAGRAPHS:
            owned: dict[int, list[Unit]] = {}
            for unit in self.units.get(name, ()):
                owned.setdefault(unit.owner, []).append(unit)
            self.paragraphs += [(unit, owned[unit.owner]) for unit in self.units.get(name, ()) if unit.questions]

    def __iter__(self) -> Iterator[Judgements]:
        worker = torch.utils.data.get_worker_info()
        chance = random.Random(self.seed + (worker.id if worker else 0))
        while True:
            pool = sorted((self.judged(chance) for _ in range(POOL)), key=lambda one: len(one[0]) + len(one[1]))
            batches: list[list[JudgedStatement]] = [[]]
            for one in pool:
                size = rounded(len(one.statement) + len(one.passage) + 3)
                if batches[-1] and (len(batches[-1]) + 1) * size > self.tokens:
                    batches.append([])
                batches[-1].append(one)
            chance.shuffle(batches)
            for some in batches:
                windows = batch([(one.statement, one.passage) for one in some], self.frame)
                verdicts = torch.tensor([one.verdict for one in some])
                yield Judgements(windows.ids, windows.mask, windows.types, verdicts)

    def judged(self, chance: random.Random) -> JudgedStatement:
        while True:
            contract = any(self.hypotheses) and (not self.paragraphs or chance.random() < HYPOTHESIS_SHARE)
            made = self.of_contract(chance) if contract else self.of_paragraph(chance)
            if made is not None:
                return made

    def of_contract(self, chance: random.Random) -> JudgedStatement | None:
        """A window of the agreement with a clause that decides, or without."""
        kinds = [number for number, some in enumerate(self.hypotheses) if some]
        kind = chance.choice(kinds)
        unit, question = chance.choice(self.hypotheses[kind])
        room = SIZE - 3 - len(question.ids)
        if KINDS[kind] != ABSENT and question.spans and chance.random() < 0.75:
            lesson = around_answer(unit, question, room, chance)
            return None if lesson is None else JudgedStatement(question.ids, lesson.passage, kind)
        start = chance.randrange(max(len(unit.ids) - room, 0) + 1)
        if any(a < start + room and b >= start for a, b in question.spans):
            return None
        return JudgedStatement(question.ids, unit.ids[start : start + room], KINDS.index(ABSENT))

    def of_paragraph(self, chance: random.Random) -> JudgedStatement | None:
        unit, article = chance.choice(self.paragraphs)
        asked = [q for q in unit.questions if q.spans]
        if not asked:
            return None
        question = chance.choice(asked)
        a, b = chance.choice(question.spans)
        answer = unit.ids[a : b + 1]
        others = [
            other.ids[x : y + 1]
            for other in (unit, chance.choice(article))
            for q in other.questions
            for x, y in q.spans[:1]
            if y - x < 12 and not np.array_equal(other.ids[x : y + 1], answer)
        ]
        wrong = chance.choice(others) if others and chance.random() < 0.5 else None
        said = answer if wrong is None else wrong
        if chance.random() < 0.5:
            statement = np.concatenate([question.ids, said])
        else:
            ends = np.flatnonzero(unit.ids == SENTENCE_END)
            first = int(ends[ends < a][-1]) + 1 if (ends < a).any() else 0
            last = int(ends[ends > b][0]) if (ends > b).any() else len(unit.ids)
            statement = np.concatenate([unit.ids[first:a], said, unit.ids[b + 1 : last]])
        verdict, passage = KINDS.index(SUPPORTED if wrong is None else CONTRADICTED), unit.ids
        if chance.random() < 0.3:  # the same statement beside another paragraph
            elsewhere = [other for other in article if other is not unit]
            passage = (chance.choice(elsewhere) if elsewhere else chance.choice(self.paragraphs)[0]).ids
            verdict = KINDS.index(ABSENT)
        room = SIZE - 3 - len(statement)
        if len(statement) < SHORTEST or room < SIZE // 4 or len(passage) > room:
            return None
        return JudgedStatement(statement, passage, verdict)


def stream(units: Mapping[str, Sequence[Unit]], frame: Frame, workers: int, seed: int = 0) -> Iterator[Judgements]:
    return batches(StatementStream(units, frame, seed=seed * LOADERS), workers)


def new_head(model: Any) -> nn.Linear:
    """A head for the model's CLS state, before any training."""
    head = nn.Linear(model.config.hidden_size, len(KINDS))
    nn.init.normal_(head.weight, std=0.02)
    nn.init.zeros_(head.bias)
    return head.to(model.device)


def save_head(head: nn.Linear, folder: Path) -> None:
    save_file({name: value.detach().half().cpu() for name, value in head.state_dict().items()}, folder / FILE)


def verdict_loss(model: Any, head: nn.Linear, given: Judgements) -> Tensor:
    with half_precision(model.device):
        logits = head(window_states(model, given)[:, 0].float())
    return nn.functional.cross_entropy(logits.float(), given.verdicts.to(model.device))


def accuracy(reader: WindowReader, head: nn.Linear, units: Sequence[Unit]) -> float:
    """Accuracy of statements on whole documents, in percent, judged as the product does."""
    asked = [(unit, question) for unit in units for question in unit.questions]
    right = 0
    for unit, question in asked:
        with half_precision(reader.model.device):
            judged = judge(reader, head, unit.ids, question.ids)
        if judged is not None:
            right += KINDS[int(np.argmax(judged.chances))] == question.kind
    return 100 * right / max(len(asked), 1)
