"""The share of its time that a GPU computes in training; the rest of the time it waits for Python or for data."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import TrainerCallback

from vcc.gpu_time import gpu_seconds

AFTER, STEPS = 20, 5  # steps before the measurement, which compile and load kernels, and steps of it


class Busy(TrainerCallback):
    """Measures a few steps once, with the profiler."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.first: int | None = None
        self.watched: profile | None = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.first = state.global_step if self.first is None else self.first
        if state.global_step == self.first + AFTER:
            self.watched = profile(activities=[ProfilerActivity.CUDA])
            self.watched.start()
            torch.cuda.synchronize()
            self.since = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.watched is None or self.first is None or state.global_step < self.first + AFTER + STEPS:
            return
        torch.cuda.synchronize()
        took = time.perf_counter() - self.since
        self.watched.stop()
        self.say(f"the GPU computes {min(1.0, gpu_seconds(self.watched) / took):.0%} of the time")
        self.watched = None
