"""The tasks of the small scale: those of the library, and two that are made from its data.

HotpotQA has 782 questions in the data folder, almost all of them from its validation split. At small scale every third
of these is tested, and the others are trained on, with those of MuSiQue and 2WikiMultihop where they are there.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from reproduction.tasks.sources import tale_choices
from vcc.data.example import Example, Head, Prediction
from vcc.data.records import Record, load_records
from vcc.errors import DataError
from vcc.tasks import TASKS
from vcc.tasks.hotpotqa import multi_hop_example
from vcc.tasks.metrics import answer_scores, choice_scores
from vcc.tasks.task import Split, Task

HOPS, CHOICES = "hotpotqa", "fairytale_choices"
MORE_HOPS = ("musique", "2wikimultihop")  # to train on
FACT_F1 = "fact_f1"
TESTED = 3  # every third question of HotpotQA's validation split


@final
@dataclass(frozen=True)
class SmallHops(Task):
    """HotpotQA with a split of its own."""

    name = HOPS
    heads: tuple[Head, ...] = ("span",)
    vips = "question"
    metric_names = ("f1", "em", FACT_F1)  # the last is that of supporting sentences (`facts.py`)

    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        return [multi_hop_example(record) for record in hop_records(split, source)]

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        return answer_scores(predictions, examples)


def hop_records(split: Split, source: str | None) -> list[Record]:
    """The questions to train on, or to test."""
    held = load_records(HOPS, "validation", source, "")
    if split != "train":
        return [record for record in held if is_tested(record)]
    found = load_records(HOPS, "train", source, "") + [record for record in held if not is_tested(record)]
    for name in MORE_HOPS:
        for part in ("train", "validation"):
            if source is not None and any((Path(source) / name).glob(f"{part}*")):
                found += load_records(name, part, source, "")
    return found


def is_tested(record: Record) -> bool:
    return int(hashlib.sha256(record.get("_id", "id").encode()).hexdigest(), 16) % TESTED == 0


@final
@dataclass(frozen=True)
class TaleChoices(Task):
    """FairytaleQA with four answers to choose from, in the place of QuALITY, whose data is not at hand."""

    name = CHOICES
    heads: tuple[Head, ...] = ("choice",)
    vips = "question and options"
    metric_names = ("accuracy",)
    like = "quality"

    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        if source is None:
            raise DataError(f"{self.name} is made from a folder with fairytaleqa/: there must be one")
        found = []
        for i, item in enumerate(tale_choices(split, source)):
            question, *choices = item.asked
            found.append(
                Example(
                    f"{item.name}-{i}", question, item.document, (choices[item.label],), choices=tuple(choices),
                    label=item.label, group=item.name,
                )
            )  # fmt: skip
        return found

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        return choice_scores(predictions, examples)


def small_task(name: str) -> Task:
    made: dict[str, type[Task]] = {HOPS: SmallHops, CHOICES: TaleChoices}
    return made[name]() if name in made else TASKS[name]()
