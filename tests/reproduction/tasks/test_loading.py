"""Steps: loaders change nothing, a later start reads what an unstopped run reads, and so does a resumed training."""

from collections.abc import Sequence
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest
import torch

from reproduction.loop import LoopPlan, learn
from reproduction.tasks.cell import DrawnItems
from reproduction.tasks.loading import GROUP, LoadedStep, SimilarLengths, loaded_steps
from tests.reproduction.tasks.test_passes import items, laying, reader

LENGTHS = [int(n) for n in np.random.default_rng(0).integers(1, 1000, 70)]


def steps(first: int, number: int) -> list[list[int]]:
    return list(islice(iter(SimilarLengths(LENGTHS, 5, 3, first)), number))


@pytest.mark.parametrize("first", [0, 3, GROUP, 2 * GROUP + 5])
def test_a_later_start_draws_what_an_unstopped_run_draws(first: int) -> None:
    assert steps(first, 20) == steps(0, first + 20)[first:]


def test_every_item_is_drawn_once_an_epoch_in_steps_of_similar_length() -> None:
    found = steps(0, 7 * GROUP)  # four epochs of 70
    drawn = [i for step in found for i in step]
    assert sorted(drawn) == sorted(list(range(70)) * 4)
    for group in range(7):
        some = sorted([LENGTHS[i] for i in step] for step in found[group * GROUP : (group + 1) * GROUP])
        assert all(max(one) <= min(other) for one, other in zip(some, some[1:], strict=False))
    assert len({tuple(step) for step in found}) == len(found)


def values(loaded: Sequence[LoadedStep]) -> list[list[torch.Tensor]]:
    return [
        [*batch.inputs.values(), batch.places, batch.owners, batch.labels] for step in loaded for batch in step.passes
    ]


@pytest.mark.parametrize("way", ["truncated", "chunks", "vcc"])
def test_loaders_prepare_what_the_training_itself_would(way: str) -> None:
    alone, with_loaders = (
        list(islice(loaded_steps(items("tag"), laying("tag", way), 4, 0, 2, loaders, pin=False), 6))
        for loaders in (0, 2)
    )
    assert [(step.documents, step.number) for step in alone] == [(step.documents, step.number) for step in with_loaders]
    for one, other in zip(values(alone), values(with_loaders), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("way", ["chunks", "vcc"])
@pytest.mark.parametrize("loaders", [0, 1])
def test_a_resumed_training_ends_as_one_that_was_not_stopped(way: str, loaders: int, tmp_path: Path) -> None:
    def trained(folder: Path, pause: float | None) -> tuple[dict[str, torch.Tensor], bool, dict[str, int]]:
        model = reader("class", way)
        optimizer = torch.optim.AdamW(model.parameters())
        work = DrawnItems(model, items("class"), laying("class", way), 4, 0, "cpu", loaders)
        ticks = count()
        plan = LoopPlan(1e-3, steps=5, pause_after=pause)
        found = learn(model, optimizer, work, plan, folder, say=lambda _: None, clock=lambda: float(next(ticks)))
        return model.state_dict(), found.finished, work.counts

    torch.manual_seed(1)
    whole, finished, counts = trained(tmp_path / "whole", None)
    assert finished and counts["documents"] == 20
    torch.manual_seed(1)
    _, finished, so_far = trained(tmp_path / "parts", 8.0)
    assert not finished and 0 < so_far["documents"] < 20
    torch.manual_seed(2)  # the checkpoint's random state counts
    parts, finished, counts_in_parts = trained(tmp_path / "parts", None)
    assert finished and counts_in_parts == counts
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
