"""The output of a run: a progress bar, or lines without a terminal, and TensorBoard curves."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from transformers import TrainerCallback

from vcc.errors import Failure
from vcc.train.clock import Clock
from vcc.train.processes import rank

console = Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """Print one line, from one process."""
    if rank() == 0:
        console.print(text, markup=False)


class Progress(TrainerCallback):
    """Loss, learning rate, tokens per second and time left."""

    def __init__(self, take_tokens: Callable[[], int], clock: Clock) -> None:
        self.take_tokens, self.clock = take_tokens, clock
        self.bar: Bar | None = None
        self.first = self.since = 0.0
        self.first_step = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.first = self.since = time.monotonic()
        self.first_step = state.global_step
        if console.is_terminal:
            columns = (TextColumn("step"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"))
            self.bar = Bar(*columns, console=console)
            self.task = self.bar.add_task("", total=state.max_steps, completed=state.global_step)
            self.bar.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        logs: dict[str, float] = given["logs"]
        if "loss" not in logs:
            scores = {name: value for name, value in logs.items() if name.startswith("eval_")}
            if scores:
                say(f"step {state.global_step}: " + ", ".join(f"{k[5:]} {v:.4g}" for k, v in scores.items()))
            return
        if not math.isfinite(logs["loss"]):
            raise Failure(
                f"the loss is {logs['loss']} at step {state.global_step}: try a smaller --lr than {args.learning_rate}"
                ", a longer --warmup, or --precision fp32"
            )
        now = time.monotonic()
        speed, self.since = self.take_tokens() / max(1e-9, now - self.since), now
        share = f"compressed {logs['compressed']:.0f}%  " if "compressed" in logs else ""
        line = (
            f"loss {logs['loss']:.4f}  lr {logs['learning_rate']:.2e}  {share}{speed:,.0f} tokens/s  "
            f"{self.left(state, now)} left"
        )
        if self.bar is not None:
            self.bar.update(self.task, description=line)
        else:
            say(f"step {state.global_step}/{state.max_steps}  {line}")

    def left(self, state: Any, now: float) -> str:
        per_step = (now - self.first) / max(1, state.global_step - self.first_step)
        seconds = per_step * (state.max_steps - state.global_step)
        if self.clock.minutes is not None:
            seconds = min(seconds, max(0.0, 60 * self.clock.minutes - self.clock.seconds))
        hours, rest = divmod(round(seconds), 3600)
        return f"{hours}:{rest // 60:02}:{rest % 60:02}"

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.close()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


class Board(TrainerCallback):
    """TensorBoard curves. Points that a killed run logged after its checkpoint are removed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(self.folder), purge_step=state.global_step + 1)

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        for name, value in given["logs"].items():
            if name != "epoch":
                where = name.replace("eval_", "eval/", 1) if name.startswith("eval_") else f"train/{name}"
                self.writer.add_scalar(where, value, state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.writer.close()
