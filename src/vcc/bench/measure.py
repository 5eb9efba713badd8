"""One cell of the benchmark: one model and length, forward or training, isolated from other cells' failures."""

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

from vcc.bench.contenders import CONTENDERS, OURS, SIZES, Kernels, attention_of, build, compile_peer, inputs
from vcc.bench.kernels import Kernel, busiest
from vcc.bench.settings import BenchSettings
from vcc.errors import is_out_of_memory
from vcc.hosts.compiled.compile import compile as compile_ours

Result = TypeVar("Result")
FILL = 0.5  # seconds of repeated runs
CALLS = 50  # maximum number of timed single calls
SLOW = 5.0  # seconds; longer runs are measured once
MOST = 1024  # maximum batch for --fit
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class BenchCell:
    """The result. The outcome is "measured", "out of memory", or "failed" or "skipped" with the reason."""

    model: str
    length: int
    mode: str  # "forward", or "training": forward and backward
    outcome: str
    attention: str = ""
    tokens: int = 0  # real ones, in the whole batch
    ms: float | None = None  # median; on a GPU, of back-to-back runs: the graph's own time
    runs: int = 0
    gib: float | None = None  # peak memory: allocated on a GPU; on a CPU resident, minus that before building the model
    first_s: float | None = None  # the first call with compilation; with workers it shares the machine
    call_ms: float | None = None  # median of single calls, from an idle machine to their end
    kernels: tuple[Kernel, ...] = ()  # of a compiled model, with --profile
    batch: int = 1  # sequences

    @property
    def sequence_ms(self) -> float | None:
        """The time of one sequence of the batch."""
        return None if self.ms is None else self.ms / self.batch


def measure(
    name: str, n: int, mode: str, settings: BenchSettings, ready: Callable[[], None] = lambda: None
) -> BenchCell:
    """Build, run and time one model; if that fails, the cell's outcome says why.

    `ready` is called between preparation (building, compiling, the first calls) and timing. A worker waits in it until
    the others are idle: nothing else runs while it is timed. The first call is timed before that; it is used as the
    measurement only if it is slow and no other worker can have slowed it down.
    """
    device = torch.device(settings.device)
    settings = replace(settings, batch=largest_batch(name, n, mode, settings)) if settings.fit else settings
    result = alone(lambda: measured(name, n, mode, settings, device, ready), settings)
    if result == OUT_OF_MEMORY and settings.fit and settings.batch > 1:  # repeated or compiled, it needs more memory
        return measure(name, n, mode, replace(settings, fit=False, batch=settings.batch // 2), ready)
    return BenchCell(name, n, mode, result, batch=settings.batch) if isinstance(result, str) else result


def largest_batch(name: str, n: int, mode: str, settings: BenchSettings) -> int:
    """The largest batch, a power of two, that fits into memory uncompiled; 1 if none does."""
    device, batch = torch.device(settings.device), 1
    while batch < MOST:
        more = replace(settings, batch=2 * batch, compile="none")
        if alone(lambda more=more: prepare(name, n, mode, more, device)[0](), settings) is not None:  # type: ignore[misc]
            break
        batch *= 2
    return batch


def alone(work: Callable[[], Result], settings: BenchSettings) -> Result | str:
    """The result of the work, or the reason why there is none; its memory is freed."""
    device = torch.device(settings.device)
    try:
        with memory_limit(device, settings.workers):
            result: Result | str = work()
    except Exception as error:
        result = why(error)
    gc.collect()  # the traceback, which held the tensors of a failure, is gone here
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
    with contextlib.nullcontext() if compiled or CONTENDERS[name].flex else kernels:
        first = clock(step, device)
    call: float | None = None
    enough = first > SLOW and device.type == "cpu" and not compiled  # where a first call neither compiles nor tunes
    if enough and settings.workers == 1:
        ms, runs = first * 1e3, 1
    else:
        reset_peak(device)
        second = first if enough else clock(step, device)  # records a CUDA graph, whose memory counts only now
        ready()
        if second <= SLOW:
            clock(step, device)  # regains the memory and clock rate lost while waiting
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
        except Exception as error:  # the measurement is still valid
            busy = (Kernel(f"none: {why(error)}", 0, 0.0),)
    single = ms if call is None else call
    return BenchCell(name, n, mode, "measured", attention, tokens, ms, runs, gib, first, single, busy, settings.batch)


def prepare(
    name: str, n: int, mode: str, settings: BenchSettings, device: torch.device
) -> tuple[Callable[[], None], Any, dict[str, Any]]:
    """The step to time, its model and its input."""
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
        run = compile_peer(name, model)
    # (D,) the loss is the mean output along one direction: no layer norm cancels its gradient
    direction = torch.randn(model.config.hidden_size, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "autocast")

    def step() -> None:
        model.zero_grad(set_to_none=True)
        with torch.set_grad_enabled(training), autocast:
            output = run(**given)
            # An encoder returns states (B, n, D); a decoder has its own loss.
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
    """Median and number of repeated runs; on a GPU between events in its queue, without waiting."""
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
    """Memory of this process: VmRSS now, VmHWM peak since the last reset, VmSize reserved; 0 if unknown."""
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
    """On a CPU, make allocations beyond nearly all free memory, or this process's share, fail, before the system kills
    some process."""
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
    """Available memory, by the system and the control group; 0 if unknown."""
    free = kilobytes(Path("/proc/meminfo"), "MemAvailable")
    group = Path("/sys/fs/cgroup/memory.max")
    most = group.read_text().strip() if group.exists() else "max"
    return free if most == "max" else min(free, int(most) - int(group.with_name("memory.current").read_text()))
