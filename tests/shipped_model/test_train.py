"""Training of the bundled model takes the steps of a plain loop, and continues exactly where it paused."""

import copy
import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from shipped_model import train
from shipped_model.data import Mixture, load
from shipped_model.practice import batches, practice_loss
from shipped_model.train import TrainOptions
from tests.shipped_model.test_scripts import prepared  # noqa: F401
from vcc.data.features import Frame

SECONDS = 12


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several pools of lessons within a run."""
    monkeypatch.setattr("shipped_model.practice.POOL", 32)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A second for every optimizer step, the same for both loops."""
    made, original = Clock(), torch.optim.AdamW.step

    def step(self: Any, *given: Any, **more: Any) -> Any:
        found = original(self, *given, **more)
        made.now += 1
        return found

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    return made


def begun(options: TrainOptions) -> tuple[Any, Mixture, Any]:
    torch.manual_seed(0)
    random.seed(0)
    data, tokenizer = load(options.prepared / "tokens.npz.xz"), AutoTokenizer.from_pretrained(options.prepared)
    mixture = Mixture(data, shortest=600, longest=600, tokens=2000)
    practice = train.practice_of(data, Frame.of(tokenizer), options.clauses)
    practice.tokens = 1024  # in a batch: a full one takes a second
    return train.start(options, tokenizer, "cpu"), mixture, practice


def plain(options: TrainOptions, clock: Clock) -> tuple[list[float], Any]:
    """The loop as it was before it was shared: AdamW, a linear schedule over time, the head five times as fast."""
    way, mixture, practice = begun(options)
    lessons, losses = batches(practice, 0), []
    model = way.model.train()
    head = {id(p) for p in model.qa_outputs.parameters()}
    body = [p for p in model.parameters() if id(p) not in head]
    optimizer = torch.optim.AdamW([{"params": body}, {"params": model.qa_outputs.parameters()}], weight_decay=0.01)
    start = clock()
    for pages in mixture:
        practised = (practice_loss(model, next(lessons)) for _ in range(options.practice))
        for loss in itertools.chain(way.losses(pages), practised):
            part = (clock() - start) / SECONDS
            for group, times in zip(optimizer.param_groups, (1, 5), strict=True):
                group["lr"] = options.rate * times * max(min(part / 0.04, (1 - part) / 0.96), 0.0)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss))
            if clock() - start >= SECONDS:
                return losses, model
    raise AssertionError("the pages are endless")


def options_of(folder: Path, way: Any, out: str) -> TrainOptions:
    return TrainOptions(
        folder, way, folder / out, layers=3, window_layers=2, minutes=SECONDS / 60, rate=1e-2, workers=0, looks=2
    )


@pytest.mark.parametrize("way", [pytest.param("twice", marks=pytest.mark.slow), "windows"])
def test_the_steps_are_those_of_a_plain_loop(way: str, prepared: Path, clock: Clock) -> None:  # noqa: F811
    options = options_of(prepared, way, "out")
    losses, model = plain(options, clock)
    trained, mixture, practice = begun(options)
    found = train.learn(trained, mixture, options, practice, clock=clock)
    lines = (options.out / f"{way}-training" / "losses.csv").read_text().splitlines()[1:]
    assert [float(line.split(",")[1]) for line in lines] == pytest.approx(losses, rel=1e-5)
    assert found["finished"] and found["steps"] == len(losses) == SECONDS
    for one, other in zip(trained.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_training_that_paused_ends_as_if_it_had_not(workers: int, prepared: Path, clock: Clock) -> None:  # noqa: F811
    options = replace(options_of(prepared, "twice", "whole"), workers=workers)
    way, mixture, practice = begun(options)
    assert train.learn(way, mixture, options, practice, clock=clock)["finished"]
    paused = replace(options, out=prepared / "paused", resume=True, pause=5 / 60)
    for number in range(9):
        again, mixture, practice = begun(paused)
        if number:  # neither the weights nor the seeds of the second start count
            torch.nn.init.normal_(again.model.qa_outputs.weight)
            torch.manual_seed(5)
            random.seed(5)
        found = train.learn(again, mixture, paused, practice, clock=clock)
        if found["finished"]:
            break
    assert number == 1 and found["steps"] == SECONDS
    own = copy.deepcopy(way.model.state_dict())
    assert all(torch.equal(own[name], value) for name, value in again.model.state_dict().items())
