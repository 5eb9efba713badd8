"""The loop: its steps are AdamW's, it ends by steps or by the clock, pauses, resumes exactly and averages weights."""

import csv
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from reproduction.loop import BETWEEN, LoopPlan, Losses, Trained, learn
from vcc.errors import Failure, UsageError


class Clock:
    """A second for every optimizer step."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Toy:
    """Regression on numbers that are functions of the step, in two pieces, through dropout."""

    model: nn.Module
    clock: Clock
    progress: float = 0.0
    counts: dict[str, int] = field(default_factory=lambda: {"rows": 0})
    seen: list[float] = field(default_factory=list)

    def steps(self, first: int, state: Any) -> Iterator[Losses]:
        torch.rand(3)  # as a loader does when it starts
        assert state == (None if first == 0 else first)
        return self.batches(first)

    def batches(self, first: int) -> Iterator[Losses]:
        self.step = first
        while True:
            self.seen.append(self.progress)
            yield self.losses()
            self.counts["rows"] += 8
            self.step += 1
            self.clock.now += 1
            yield BETWEEN

    def losses(self) -> Iterator[torch.Tensor]:
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(self.step))
        for part in x.chunk(2):
            yield (self.model(part) - part.sum(1, keepdim=True)).pow(2).sum() / 8

    def state(self) -> int:
        return self.step


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))


def run(plan: LoopPlan, folder: Path | None = None, model: nn.Module | None = None) -> tuple[nn.Module, Trained, Toy]:
    model = model or network()
    clock = Clock()
    work = Toy(model, clock)
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW([{"params": model[0].parameters()}, {"params": model[2].parameters(), "times": 3.0}])
    done = learn(model, optimizer, work, plan, folder, say=lambda _: None, clock=clock)
    return model, done, work


def test_steps_are_those_of_a_plain_loop() -> None:
    plan = LoopPlan(1e-2, steps=12, warmup=0.25, log_every=5)
    model, done, work = run(plan)
    own = network()
    torch.manual_seed(1)
    torch.rand(3)
    optimizer = torch.optim.AdamW([{"params": own[0].parameters()}, {"params": own[2].parameters()}])
    losses = []
    for step in range(12):
        rate = 1e-2 * (min((step + 1) / 3, 1.0) if step < 3 else (12 - step) / 9)
        optimizer.param_groups[0]["lr"], optimizer.param_groups[1]["lr"] = rate, 3 * rate
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        parts = []
        for part in x.chunk(2):
            parts.append((own(part) - part.sum(1, keepdim=True)).pow(2).sum() / 8)
            parts[-1].backward()
        nn.utils.clip_grad_norm_(own.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(part.item() for part in parts))
    for one, other in zip(model.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert [point["step"] for point in done.curve] == [5, 10, 12] and done.finished and not model.training
    assert [p["loss"] for p in done.curve] == pytest.approx(
        [sum(losses[:5]) / 5, sum(losses[5:10]) / 5, sum(losses[10:]) / 2]
    )
    assert work.seen == pytest.approx([step / 12 for step in range(12)])


def test_the_clock_ends_a_run_and_lowers_its_rate(tmp_path: Path) -> None:
    _, done, _ = run(LoopPlan(1.0, seconds=10, warmup=0.2), tmp_path)
    assert done.finished and done.steps == 11  # the eleventh step begins with the tenth second
    with (tmp_path / "losses.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(1, 12))
    assert [float(row["rate"]) for row in rows] == pytest.approx(
        [0, 0.5, *((10 - second) / 8 for second in range(2, 11))], abs=1e-3
    )
    assert run(LoopPlan(1.0, steps=4, seconds=10))[1].steps == 4


@pytest.mark.parametrize("kept", [{}, {"ema": 0.9}, {"average_last": 0.5}])
def test_a_run_that_paused_ends_as_if_it_had_not(kept: dict[str, float], tmp_path: Path) -> None:
    whole, done, _ = run(LoopPlan(1e-2, steps=9, **kept), tmp_path / "whole")
    folder = tmp_path / "paused"
    pauses = 0
    while not (again := run(LoopPlan(1e-2, steps=9, pause_after=2.5, **kept), folder))[1].finished:
        pauses += 1
        assert len(list(folder.glob("checkpoint-*"))) == 1
        with pytest.raises(Failure, match="rate is 0.01 there and 0.5 here"):
            run(LoopPlan(0.5, steps=9, **kept), folder)
    assert pauses == 2 and again[1].steps == done.steps == 9 and again[1].seconds == done.seconds
    assert again[2].counts == {"rows": 8 * 8}, "the ninth batch is counted after its step"
    for one, other in zip(whole.parameters(), again[0].parameters(), strict=True):
        assert torch.equal(one, other)
    lines = [(tmp_path / name / "losses.csv").read_text() for name in ("whole", "paused")]
    assert lines[0] == lines[1] and not list(folder.glob("checkpoint-*"))


def test_a_run_that_is_asked_to_end_saves_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM within the fourth step: that step is finished and saved, and the next call ends as if nothing was."""
    plain = Toy.losses

    def killed(self: Toy) -> Iterator[torch.Tensor]:
        if self.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(self)

    whole, done, _ = run(LoopPlan(1e-2, steps=9), tmp_path / "whole")
    folder, before = tmp_path / "killed", signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Toy, "losses", killed)
    with pytest.raises(SystemExit) as end:
        run(LoopPlan(1e-2, steps=9), folder)
    assert end.value.code == 143 and [path.name for path in folder.glob("checkpoint-*")] == ["checkpoint-4"]
    assert signal.getsignal(signal.SIGTERM) == before
    monkeypatch.setattr(Toy, "losses", plain)
    again, resumed, _ = run(LoopPlan(1e-2, steps=9), folder)
    assert resumed.steps == 9 and resumed.seconds == done.seconds
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True))
    assert (folder / "losses.csv").read_text() == (tmp_path / "whole" / "losses.csv").read_text()


def test_the_last_weights_are_averaged(tmp_path: Path) -> None:
    seen = []

    class Noted(nn.Sequential):
        pass

    model = Noted(*network())
    original = torch.optim.AdamW.step

    def noted(self: Any, *given: Any) -> Any:
        found = original(self, *given)
        seen.append([p.detach().clone() for p in model.parameters()])
        return found

    torch.optim.AdamW.step = noted  # type: ignore[method-assign]
    try:
        run(LoopPlan(1e-2, steps=8, average_last=0.5), model=model)
    finally:
        torch.optim.AdamW.step = original  # type: ignore[method-assign]
    for i, parameter in enumerate(model.parameters()):
        torch.testing.assert_close(parameter, torch.stack([weights[i] for weights in seen[3:]]).mean(0))


def test_a_loss_that_is_no_number_ends_the_run() -> None:
    with pytest.raises(ArithmeticError, match="at step 20: a lower rate than 1e"):
        run(LoopPlan(1e30, steps=40))


@pytest.mark.parametrize("wrong", [{}, {"steps": 0}, {"seconds": -1.0}, {"steps": 1, "ema": 0.9, "average_last": 0.1}])
def test_a_plan_says_what_is_wrong_with_it(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        LoopPlan(1e-3, **wrong)
