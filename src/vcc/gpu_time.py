"""The time of GPU kernels in a profile; a GPU that waits for Python is idle."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd import DeviceType


def gpu_events(watched: torch.profiler.profile) -> Iterator[Any]:
    """The kernels, copies and fills of a profile, with their calls and times."""
    for event in watched.key_averages():
        # user annotations are listed among the kernels and would be counted twice
        if event.device_type == DeviceType.CUDA and not event.is_user_annotation:
            yield event


def gpu_seconds(watched: torch.profiler.profile) -> float:
    """How long the GPU computed."""
    return sum(event.self_device_time_total for event in gpu_events(watched)) / 1e6
