"""Work on a CUDA device as a graph: its kernels are launched together, with nothing of Python between them."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def record(work: Callable[[], Result], warm_ups: int = 1, pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    """The graph of `work`, and what `work` gives, in memory that every replay writes to again.

    `work` runs so many times before, for what is compiled or asked of a library once, and once while it is recorded:
    then only what it does in Python is done. `pool`: memory of another graph, which it goes on with.
    """
    warm_up(work, warm_ups)
    graph = torch.cuda.CUDAGraph()
    with without_autocast_cache(), torch.cuda.graph(graph, pool=pool):
        result = work()
    return graph, result


def warn_not_recorded(what: str, error: Exception) -> None:
    """To be said once where recording has failed and `what` is done without a graph."""
    why = " ".join(str(error).split())[:200]
    warnings.warn(f"{what} not recorded as a CUDA graph, and slower for it: {why}", stacklevel=3)


def warm_up(work: Callable[[], Any], times: int) -> None:
    """Let `work` run aside from all else, as it must before it is recorded."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with without_autocast_cache(), torch.cuda.stream(beside):
        for _ in range(times):
            work()
    torch.cuda.current_stream().wait_stream(beside)


@contextmanager
def without_autocast_cache() -> Iterator[None]:
    """Autocast casts every weight anew: a graph would go on reading the copies that are kept until autocast is left,
    and not notice when weights change."""
    was = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(was)
