"""The time of one step by kernel, from the profiler, also for compiled graphs."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity

from vcc.gpu_time import gpu_events

TOP = 12
OTHERS = "all others"


@dataclass(frozen=True)
class Kernel:
    """A GPU kernel, or on a CPU an operation without nested ones: its calls and time in one step."""

    name: str
    calls: int
    ms: float


def busiest(step: Callable[[], None], device: torch.device) -> tuple[Kernel, ...]:
    """The most expensive kernels of one step, then the sum of the others."""
    cuda = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with torch.profiler.profile(activities=activities) as watched:
        step()
        if cuda:
            torch.cuda.synchronize(device)
    found = [
        Kernel(event.key, event.count, (event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e3)
        for event in (gpu_events(watched) if cuda else watched.key_averages())
    ]
    found = sorted((kernel for kernel in found if kernel.ms > 0), key=lambda kernel: -kernel.ms)
    rest = found[TOP:]
    others = Kernel(OTHERS, sum(kernel.calls for kernel in rest), sum(kernel.ms for kernel in rest))
    return (*found[:TOP], *([others] if rest else [])) or (Kernel("none: the profiler saw nothing", 0, 0.0),)
