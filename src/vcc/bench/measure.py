"""One cell of the benchmark: one model, one length, forward or training, on its own, whatever happens to it."""

import contextlib
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from vcc.bench.contenders import OURS, SIZES, Kernels, attention_of, build, inputs
from vcc.bench.kernels import Kernel, busiest
from vcc.bench.settings import BenchSettings
from vcc.errors import is_out_of_memory
from vcc.hosts.compiled.compile import compile as compile_ours

Result = TypeVar("Result")
FILL = 0.5  # seconds of repeated runs
CALLS = 50  # single calls that are timed, at most
SLOW = 5.0  # seconds; a run as long as that is measured once
MOST = 1024  # sequences of a batch that is made to fit
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class BenchCell:
    """What came of it. The outcome is "measured", "out of memory", or "failed" or "skipped" and why."""

    model: str
    length: int
    mode: str  # "forward", or "training": forward and backward
    outcome: str
    attention: str = ""
    tokens: int = 0  # real ones, in the whole batch
    ms: float | None = None  # median; on a GPU, of runs that follow each other without waiting: the graph's own time
    runs: int = 0
    gib: float | None = None  # peak memory: allocated, on a GPU; on a CPU resident, less that before the model was made
    first_s: float | None = None  # the first call, compilation included; with workers it shares the machine
    call_ms: float | None = None  # median of single calls, from an idle machine to their end, as a person times them
    kernels: tuple[Kernel, ...] = ()  # of a compiled model, if a profile is asked for
    batch: int = 1  # sequences at once

    @property
    def sequence_ms(self) -> float | None:
        """The time of one sequence of the batch."""
        return None if self.ms is None else self.ms / self.batch


def measure(
    name: str, n: int, mode: str, settings: BenchSettings, ready: Callable[[], None] = lambda: None
) -> BenchCell:
    """Build one model, run it and time it; if that fails, the cell's outcome says why.

    `ready` is called between preparing (building, compiling, the first calls) and timing. A worker waits in it until
    the others are idle, so that nothing else runs while it is timed. The first call is timed before that; it counts
    as the measurement only where it is slow and no other worker can have slowed it down.
    """
    device = torch.device(settings.device)
    settings = replace(settings, batch=largest_batch(name, n, mode, settings)) if settings.fit else settings
    result = alone(lambda: measured(name, n, mode, settings, device, ready), settings)
    if result == OUT_OF_MEMORY and settings.fit and settings.batch > 1:  # repeated or compiled, it needs a little more
        return measure(name, n, mode, replace(settings, fit=False, batch=settings.batch // 2), ready)
    return BenchCell(name, n, mode, result, batch=settings.batch) if isinstance(result, str) else result


def largest_batch(name: str, n: int, mode: str, settings: BenchSettings) -> int:
    """The largest power of two of sequences that fit into memory, not compiled; 1 where none does."""
    device, batch = torch.device(settings.device), 1
    while batch < MOST:
        more = replace(settings, batch=2 * batch, compile="none")
        if alone(lambda more=more: prepare(name, n, mode, more, device)[0](), settings) is not None:  # type: ignore[misc]
            break
        batch *= 2
    return batch


def alone(work: Callable[[], Result], settings: BenchSettings) -> Result | str:
    """The result of the work, or why there is none; nothing of it stays behind in memory."""
    device = torch.device(settings.device)
    try:
        with memory_limit(device, settings.workers):
            result: Result | str = work()
    except Exception as error:
        result = why(error)
    gc.collect()  # here the traceback, which held the tensors of a failure, is gone
    torch.compiler.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return result


def measured(
    name: str, n: int, mode: str, settings: BenchSettings, device: torch.device, ready: Callable[[], None]
) -> BenchCell:
    before = process_bytes("VmRSS")
    reset_peak(device)
    step, model, given = prepare(name, n, mode, settings, device)
    compiled = settings.compile == "all" or (settings.compile == "ours" and name in OURS)
    kernels = Kernels()
    with contextlib.nullcontext() if compiled else kernels:
        first = clock(step, device)
    call: float | None = None
    enough = first > SLOW and device.type == "cpu" and not compiled  # there, a first call compiles and tunes nothing
    if enough and settings.workers == 1:
        ms, runs = first * 1e3, 1
    else:
        reset_peak(device)
        second = first if enough else clock(step, device)  # records a CUDA graph, whose memory is counted only then
        ready()
        if second <= SLOW:
            clock(step, device)  # takes back the memory and the clock rate that were given up in waiting
        ms, runs = median_ms(step, device)
        if device.type == "cuda":
            call = statistics.median(clock(step, device) for _ in range(min(runs, CALLS))) * 1e3
    attention = attention_of(name, model, None if compiled else kernels.seen)
    tokens = settings.batch * n if given.get("attention_mask") is None else int(given["attention_mask"].sum())
    gib = peak_gib(device, before)
    busy: tuple[Kernel, ...] = ()
    if compiled and settings.profile:
        try:
            busy = busiest(step, device)
        except Exception as error:  # the measurement is good all the same
            busy = (Kernel(f"none: {why(error)}", 0, 0.0),)
    single = ms if call is None else call
    return BenchCell(name, n, mode, "measured", attention, tokens, ms, runs, gib, first, single, busy, settings.batch)


def prepare(
    name: str, n: int, mode: str, settings: BenchSettings, device: torch.device
) -> tuple[Callable[[], None], Any, dict[str, Any]]:
    """The step to be timed, the model it runs, and its input."""
    dtype = torch.bfloat16 if settings.precision == "bf16" else torch.float32
    model = build(name, SIZES[settings.size], n, settings.dropout, dtype, device, settings)
    given = inputs(name, model, settings.batch, n, settings.ragged, device, settings)
    training = mode == "training"
    model.train(training)
    if settings.checkpointing and training:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    run = model
    if settings.compile != "none" and name in OURS:
        run = compile_ours(model)
    elif settings.compile == "all":
        run = torch.compile(model)
    # (D,) the loss is the mean output in one direction: no layer norm cancels its gradient
    direction = torch.randn(model.config.hidden_size, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "autocast")

    def step() -> None:
        model.zero_grad(set_to_none=True)
        with torch.set_grad_enabled(training), autocast:
            output = run(**given)
            # Of an encoder, states (B, n, D); a decoder has a loss of its own.
            loss = output.loss if "labels" in given else (output.last_hidden_state @ direction).mean()
        if training:
            loss.backward()

    return step, model, given


def clock(step: Callable[[], None], device: torch.device) -> float:
    """Seconds of one run, from an idle machine to its end."""
    wait(device)
    start = time.perf_counter()
    step()
    wait(device)
    return time.perf_counter() - start


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def median_ms(step: Callable[[], None], device: torch.device) -> tuple[float, int]:
    """Median and number of repeated runs; on a GPU between events in its own queue, without waiting in between."""
    once = clock(step, device)
    if once > SLOW:
        return once * 1e3, 1
    runs = max(3, min(200, math.ceil(FILL / once)))
    if device.type == "cpu":
        return statistics.median(clock(step, device) for _ in range(runs)) * 1e3, runs
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]
    for start, end in events:
        start.record()
        step()
        end.record()
    wait(device)
    return statistics.median(start.elapsed_time(end) for start, end in events), runs


def why(error: Exception) -> str:
    """The outcome of a cell that raised."""
    if is_out_of_memory(error):
        return OUT_OF_MEMORY
    return f"failed: {type(error).__name__}: {' '.join(str(error).split())[:160]}"


# -------------------------------------------------------------------------------------------------------------- memory


def process_bytes(field: str) -> int:
    """Of this process: VmRSS now, VmHWM at most since the last reset, VmSize reserved; 0 where nobody tells."""
    return kilobytes(Path("/proc/self/status"), field)


def kilobytes(file: Path, field: str) -> int:
    lines = file.read_text().splitlines() if file.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":")), 0)


def reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_gib(device: torch.device, before: int) -> float | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return max(process_bytes("VmHWM") - before, 0) / 2**30 if before else None


@contextlib.contextmanager
def memory_limit(device: torch.device, sharing: int = 1) -> Iterator[None]:
    """On a CPU, an allocation of nearly all that is free, or of this process's share, fails, where the system would
    end some process."""
    free = free_bytes() * 4 // 5 // sharing if device.type == "cpu" else 0
    if not free:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (process_bytes("VmSize") + free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def free_bytes() -> int:
    """What can still be had, by the system and by the control group; 0 where nobody tells."""
    free = kilobytes(Path("/proc/meminfo"), "MemAvailable")
    group = Path("/sys/fs/cgroup/memory.max")
    most = group.read_text().strip() if group.exists() else "max"
    return free if most == "max" else min(free, int(most) - int(group.with_name("memory.current").read_text()))
