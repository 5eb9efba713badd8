"""The steps of a training, prepared by loader processes; a step is a function of its number.

Documents of similar length are in one step, for every way alike: padding costs least that way.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from torch.utils.data import DataLoader, Dataset

from reproduction.small.learning import AHEAD, ENDLESS, Later
from reproduction.tasks.packed import LongItem
from reproduction.tasks.passes import Laying
from reproduction.tasks.rows import LongBatch
from vcc.train.draws import Stream

GROUP = 8  # steps whose documents are drawn together and then sorted by length


@dataclass(frozen=True)
class LoadedStep:
    """The forward passes of one optimizer step."""

    passes: list[LongBatch]
    documents: int

    @property
    def number(self) -> float:
        """The sum of the loss's weights."""
        return sum(one.number for one in self.passes)

    @property
    def tokens(self) -> int:
        return sum(one.inputs["input_ids"].numel() for one in self.passes)

    def pin_memory(self) -> "LoadedStep":
        """The loader's thread calls this."""
        return LoadedStep([one.pin_memory() for one in self.passes], self.documents)

    def to(self, device: str) -> "LoadedStep":
        return LoadedStep([one.to(device) for one in self.passes], self.documents)


@dataclass(frozen=True)
class SimilarLengths:
    """The items of every step from number `first` on. Every item is drawn once an epoch; the documents of a group of
    steps are sorted by length, and the steps of the group are in a random order."""

    lengths: Sequence[int]
    batch: int
    seed: int
    first: int = 0

    def __iter__(self) -> Iterator[list[int]]:
        group, skipped = divmod(self.first, GROUP)
        size = GROUP * self.batch
        draws = iter(Later(Stream(len(self.lengths), ENDLESS, self.seed), group * size))
        while True:
            drawn = sorted((draw % len(self.lengths) for draw in islice(draws, size)), key=self.lengths.__getitem__)
            steps = [drawn[i : i + self.batch] for i in range(0, size, self.batch)]
            random.Random(f"{self.seed} {group}").shuffle(steps)
            yield from steps[skipped:]
            group, skipped = group + 1, 0


class StepPasses(Dataset[LoadedStep]):
    """The items of a step -> its passes."""

    def __init__(self, items: Sequence[LongItem], laying: Laying) -> None:
        self.items, self.laying = items, laying

    def __getitem__(self, chosen: list[int]) -> LoadedStep:
        items = [self.items[i] for i in chosen]
        return LoadedStep([batch for _, batch in self.laying.passes(items)], len(items))


def loaded_steps(
    items: Sequence[LongItem], laying: Laying, batch: int, seed: int, first: int, loaders: int, pin: bool
) -> Iterator[LoadedStep]:
    """All steps from number `first` on. The call starts the loaders."""
    chosen = SimilarLengths([item.length for item in items], batch, seed, first)
    loader = DataLoader(
        StepPasses(items, laying), batch_size=None, sampler=chosen,  # type: ignore[arg-type]
        num_workers=loaders, prefetch_factor=AHEAD if loaders else None, pin_memory=pin,
    )  # fmt: skip
    return iter(loader)
