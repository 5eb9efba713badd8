"""Our time by step of the algorithm, measured from outside, uncompiled."""

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from vcc.bench.contenders import OURS
from vcc.bench.measure import BenchCell, alone, clock, measure, prepare, wait
from vcc.bench.settings import BenchSettings
from vcc.hosts.forward.encoder import find_encoder

RUNS = 5
FUNCTIONS = {  # of vcc/encode.py
    "split_vips": "split",
    "run_windows": "windows",
    "build_tree": "build",
    "choose_cut": "choose",
    "read_cut_and_pass_tree": "read",
    "add_to_cut": "write",
}


@dataclass(frozen=True)
class Profile:
    """Milliseconds of one step by stage; the remainder is "rest"."""

    model: str
    length: int
    mode: str
    total_ms: float
    stages_ms: dict[str, float]


class Stopwatch:
    """Records starts and ends of stages. A nested stage counts as the outer one: a window layer is windows."""

    def __init__(self, device: torch.device) -> None:
        self.cuda, self.inside = device.type == "cuda", False
        self.spans: list[tuple[str, Any, Any]] = []

    def now(self) -> Any:
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def timing(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return function(*args, **kwargs)
            self.inside, start = True, self.now()
            try:
                return function(*args, **kwargs)
            finally:
                self.inside = False
                self.spans.append((stage, start, self.now()))

        return timed

    def ms(self, stage: str) -> float:
        spans = ((start, end) for name, start, end in self.spans if name == stage)
        return sum(start.elapsed_time(end) if self.cuda else (end - start) * 1e3 for start, end in spans)


@contextmanager
def instead(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Inside the block, this function replaces the owner's."""
    own = vars(owner).get(name)  # None: it is inherited
    setattr(owner, name, function)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


def measure_and_profile(
    name: str, n: int, mode: str, settings: BenchSettings, ready: Callable[[], None] = lambda: None
) -> tuple[BenchCell, Profile | str | None]:
    """The measurement of a cell and, for our models with --profile, a profile or the reason why not."""
    cell = measure(name, n, mode, settings, ready)
    wanted = settings.profile and name in OURS and cell.ms is not None
    return cell, profile(name, n, mode, settings) if wanted else None


def profile(name: str, n: int, mode: str, settings: BenchSettings) -> Profile | str:
    """The profile of one of our models, the mean of a few runs, or the reason why there is none."""
    device = torch.device(settings.device)
    return alone(lambda: profiled(name, n, mode, settings, device), settings)


def profiled(name: str, n: int, mode: str, settings: BenchSettings, device: torch.device) -> Profile:
    step, model, _ = prepare(name, n, mode, replace(settings, compile="none"), device)
    step()
    host, watch = find_encoder(model).host_class, Stopwatch(device)
    encode = importlib.import_module("vcc.encode")  # `vcc.encode` is the function
    stages = [(host, "embed", "embed"), *((encode, function, stage) for function, stage in FUNCTIONS.items())]
    stages += [
        (encode.Compressed, "whole", "flatten"),
        (host, "layer", "layer"),
        (host, "finish", "finish"),
        (torch.Tensor, "backward", "backward"),
    ]
    with ExitStack() as stack:
        for owner, function, stage in stages:
            timed = watch.timing(stage, getattr(owner, function))
            stack.enter_context(instead(owner, function, timed))
        total = sum(clock(step, device) for _ in range(RUNS)) * 1e3 / RUNS
    wait(device)
    found = {stage: watch.ms(stage) / RUNS for _, _, stage in stages if stage != "backward" or mode == "training"}
    return Profile(name, n, mode, total, found | {"rest": total - sum(found.values())})
