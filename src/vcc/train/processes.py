"""Communication between processes. With one process, each function is the identity."""

import os
from typing import TypeVar

import torch.distributed as dist

T = TypeVar("T")


def together() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def world_size() -> int:
    """The number of processes, from the launcher's environment."""
    return dist.get_world_size() if together() else int(os.environ.get("WORLD_SIZE", "1"))


def local_processes() -> int:
    """The number of processes on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def rank() -> int:
    return dist.get_rank() if together() else int(os.environ.get("RANK", "0"))


def from_first(value: T) -> T:
    """The first process's value."""
    if not together():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def gathered(value: T) -> list[T]:
    """The values of all processes, by rank."""
    if not together():
        return [value]
    box: list[T] = [value] * world_size()
    dist.all_gather_object(box, value)
    return box
