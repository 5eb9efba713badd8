"""One training loop below the Hugging Face Trainer, for experiments that keep one GPU busy.

The objective is `Work`: a stream of optimizer steps, each a stream of losses. The loop adds the schedule, clipping, a
limit in steps or seconds, weight averaging, a log of every step, and checkpoints; asked to end by SIGTERM, it writes
one first. A stopped run resumes from the last and, if its work is a function of its state, ends as if it had not been
stopped.

Losses stay on the device until they are logged: no step waits for the GPU.
"""

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol

import torch
from torch import Tensor, nn

from reproduction.average import WeightAverage
from vcc.errors import UsageError
from vcc.files import write_whole
from vcc.hosts.forward.wrapped import Wrapped
from vcc.train.checkpoint import checkpoints, keep_newest, newest_good, remove, remove_leftovers, write_checkpoint
from vcc.train.models import compile_model
from vcc.train.record import FREE, free
from vcc.train.state import load_state, random_state, save_state, set_random_state

Losses = Iterable[
    Tensor
]  # of one optimizer step, computed one at a time: the backward pass of each runs before the next
BETWEEN: Losses = ()  # not a step: here the run may be saved
STATE, LOSSES = "loop", "losses.csv"


@dataclass(frozen=True)
class LoopPlan:
    """The length, learning rate and checkpoints of a training."""

    rate: float  # peak learning rate
    steps: int | None = None  # optimizer steps
    seconds: float | None = None  # of training, over all starts of the run
    warmup: float = 0.1  # share of the run
    clip: float = 1.0  # maximum gradient norm
    ema: float | None = None  # decay of an exponential average of the weights, which becomes the model
    average_last: float | None = None  # or: the share of the run at its end over which weights are averaged
    compile: Annotated[bool, FREE] = False  # the encoder
    pause_after: Annotated[float | None, FREE] = None  # seconds of this call before it saves and returns
    save_every: Annotated[float, FREE] = 30.0  # seconds between checkpoints, for a run that is killed
    log_every: Annotated[int, FREE] = 20  # steps

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None:
            raise UsageError("steps and seconds are both missing: give one of them")
        for name in ("rate", "steps", "seconds", "clip", "pause_after", "log_every"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} is {value}: it must be greater than 0")
        for name in ("warmup", "ema", "average_last"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise UsageError(f"{name} is {value}: it must be at least 0 and less than 1")
        if self.ema is not None and self.average_last is not None:
            raise UsageError(f"ema is {self.ema} and average_last is {self.average_last}: give one of them")

    def progress(self, step: int, seconds: float) -> float:
        """The finished share of the run, by the limit that comes first."""
        return max(step / self.steps if self.steps else 0.0, seconds / self.seconds if self.seconds else 0.0)

    def factor(self, step: int, seconds: float) -> float:
        """Linear warm-up, then linear decay to 0, by steps, by time, or by the lower of the two."""
        factors = []
        if self.steps is not None:
            warm = max(1, round(self.warmup * self.steps))
            factors.append(min((step + 1) / warm, (self.steps - step) / max(1, self.steps - warm)))
        if self.seconds is not None:
            part = seconds / self.seconds
            factors.append(max(min(part / self.warmup if self.warmup else 1.0, (1 - part) / (1 - self.warmup)), 0.0))
        return min(factors)

    def run(self) -> dict[str, Any]:
        """The settings that a checkpoint must share to be resumed."""
        return {name: value for name, value in asdict(self).items() if name not in free(self)}


class Work(Protocol):
    """An endless objective. The loop sets `progress` before each step; `counts` are logged and saved."""

    progress: float = 0.0
    counts: dict[str, int]

    def steps(self, first: int, state: Any) -> Iterator[Losses]:
        """All steps from number `first` on, with `BETWEEN` where the run may be saved. `state` is the result of
        `state()` there, None at the start. This call starts the loaders, not the first step."""
        ...

    def state(self) -> Any:
        """What `steps` needs to continue from here besides the step's number; called at `BETWEEN`."""
        return None


@dataclass
class Trained:
    """The result of a training."""

    steps: int = 0
    seconds: float = 0.0
    curve: list[dict[str, float]] = field(default_factory=list)  # a point for every `log_every` steps
    finished: bool = False  # false: it paused


def half_precision(device: torch.device | str) -> torch.autocast:
    """bf16 on a GPU. Enter it for each step: it caches casts of the weights until it is left."""
    kind = torch.device(device).type
    return torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda")


def learn(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    work: Work,
    plan: LoopPlan,
    folder: Path | None = None,
    evaluate: Callable[[Any], dict[str, float]] | None = None,
    evaluate_every: int = 0,
    say: Callable[[str], None] = print,
    clock: Callable[[], float] = time.monotonic,
) -> Trained:
    """Train the model. Parameter groups may have `times`, a multiple of the rate. Without a folder nothing is saved."""
    done = Trained()
    average = None
    if plan.ema is not None or plan.average_last is not None:
        average = WeightAverage(model, plan.ema)
    found = resumable(folder, plan)
    if found is not None:
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        done = Trained(found["step"], found["seconds"], found["curve"])
        work.counts = found["counts"]
        if average is not None:
            average.restore(found["average"])
        say(f"continues from step {done.steps}")
    log = LossLog(folder, done.steps)
    if plan.compile:
        compile_encoder(model)
    model.train()
    steps = work.steps(done.steps, found and found["work"])
    if found is not None:  # now, because starting the loaders draws a random number
        set_random_state(found["random"])
    before = done.seconds
    began = saved = clock()

    def seconds() -> float:
        return before + clock() - began

    def save() -> None:
        if folder is not None:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "average": average.state() if average is not None else None,
                "work": work.state(),
                "random": random_state(),
                "step": done.steps,
                "seconds": seconds(),
                "curve": done.curve,
                "counts": work.counts,
            }
            write_checkpoint(folder, done.steps, plan.run(), lambda aside: save_state(aside, STATE, state))
            keep_newest(folder, 1)

    with SavesFirst() as ending, contextlib.closing(log), contextlib.closing(steps):  # type: ignore[type-var]
        while not done.finished:
            work.progress = plan.progress(done.steps, seconds())
            losses = next(steps)
            if losses is BETWEEN:
                paused = plan.pause_after is not None and clock() - began > plan.pause_after
                if paused or ending.asked or (folder is not None and clock() - saved > plan.save_every):
                    log.flush()
                    save()
                    saved = clock()
                if paused:
                    break
                if ending.asked:
                    raise SystemExit(128 + signal.SIGTERM)
                continue
            factor = plan.factor(done.steps, seconds())
            for group in optimizer.param_groups:
                group["lr"] = plan.rate * group.get("times", 1.0) * factor
            total: Tensor | None = None
            for loss in losses:
                loss.backward()
                total = loss.detach() if total is None else total + loss.detach()
            nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            done.steps += 1
            ending.saves = folder is not None
            assert total is not None, "a step has at least one loss"
            log.add(done.steps, total, plan.rate * factor, seconds())
            progress = plan.progress(done.steps, seconds())
            if average is not None and (plan.average_last is None or progress >= 1 - plan.average_last):
                average.add()
            done.finished = progress >= 1
            if done.steps % plan.log_every == 0 or done.finished:
                point = {"step": done.steps, "loss": log.mean(), "seconds": seconds()}
                if not math.isfinite(point["loss"]):
                    raise ArithmeticError(
                        f"the loss is {point['loss']} at step {done.steps}: a lower rate than {plan.rate:g} may help"
                    )
                if evaluate is not None and (done.finished or (evaluate_every and done.steps % evaluate_every == 0)):
                    with average.in_place() if average is not None else contextlib.nullcontext():
                        point |= evaluate(model)
                    model.train()
                done.curve.append(point)
                counted = "".join(f", {value:,} {name}" for name, value in work.counts.items())
                say(", ".join(f"{name} {value:.4g}" for name, value in point.items()) + counted)
    done.seconds = seconds()
    if done.finished and average is not None:
        average.put()
    if done.finished and folder is not None:
        for path in checkpoints(folder):
            remove(path)
    model.eval()
    return done


class SavesFirst:
    """Within the block SIGTERM is noted if there is something to save. Else it ends the process as ever: the first
    step may compile for a minute."""

    saves = asked = False

    def __enter__(self) -> "SavesFirst":
        self.mine = threading.current_thread() is threading.main_thread()  # no other one may handle signals
        if self.mine:
            self.before = signal.signal(signal.SIGTERM, self.note)
        return self

    def note(self, number: int, frame: object) -> None:
        self.asked = True
        if not self.saves:
            signal.signal(number, self.before)
            os.kill(os.getpid(), number)

    def __exit__(self, *error: object) -> None:
        if self.mine:
            signal.signal(signal.SIGTERM, self.before)


def compile_encoder(model: Any) -> None:
    """Compile in place, except a head that runs on some tokens only."""
    encoder: Any = model if isinstance(model, Wrapped) else getattr(model, "base_model", model)
    compile_model(encoder)


def resumable(folder: Path | None, plan: LoopPlan) -> dict[str, Any] | None:
    """The state of the newest valid checkpoint of a run with this plan."""
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    path = newest_good(folder, plan.run()).path
    return None if path is None else load_state(path, STATE)


class LossLog:
    """The loss, rate and time of every step. Losses stay on the device and are fetched in groups."""

    def __init__(self, folder: Path | None, steps: int) -> None:
        self.waiting: list[tuple[int, Tensor, float, float]] = []
        self.recent: list[float] = []
        self.file = None
        if folder is not None:
            path = folder / LOSSES
            lines = path.read_text().splitlines()[1 : steps + 1] if path.exists() else []  # none past the checkpoint
            write_whole(path, "\n".join(["step,loss,rate,seconds", *lines]) + "\n")
            self.file = path.open("a")

    def add(self, step: int, loss: Tensor, rate: float, seconds: float) -> None:
        self.waiting.append((step, loss, rate, seconds))

    def flush(self) -> None:
        if self.waiting:
            losses = torch.stack([loss.float() for _, loss, _, _ in self.waiting]).tolist()
            if self.file is not None:
                for (step, _, rate, seconds), loss in zip(self.waiting, losses, strict=True):
                    self.file.write(f"{step},{loss:.6g},{rate:.4g},{seconds:.3f}\n")
                self.file.flush()
            self.recent += losses
            self.waiting = []

    def mean(self) -> float:
        """The mean of the losses since the last call."""
        self.flush()
        recent, self.recent = self.recent, []
        return sum(recent) / len(recent)

    def close(self) -> None:
        self.flush()
        if self.file is not None:
            self.file.close()
