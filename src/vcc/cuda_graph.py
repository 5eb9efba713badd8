"""CUDA graphs: kernels launched together, without Python between them."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def record(work: Callable[[], Result], warm_ups: int = 1, pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Record `work`; return the graph and the result of `work`, in memory that every replay overwrites.

    `work` first runs a few times, for compilation and one-time library setup, then once while recording, when only its
    Python code runs. `pool` is the memory of another graph to share.
    """
    warm_up(work, warm_ups)
    graph = torch.cuda.CUDAGraph()
    with without_autocast_cache(), torch.cuda.graph(graph, pool=pool):
        result = work()
    return graph, result


def warn_not_recorded(what: str, error: Exception) -> None:
    """Warn that recording failed and `what` runs without a graph."""
    why = " ".join(str(error).split())[:200]
    warnings.warn(f"{what} not recorded as a CUDA graph, which is slower: {why}", stacklevel=3)


def warm_up(work: Callable[[], Any], times: int) -> None:
    """Run `work` on a side stream, as required before recording."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with without_autocast_cache(), torch.cuda.stream(beside):
        for _ in range(times):
            work()
    torch.cuda.current_stream().wait_stream(beside)


@contextmanager
def without_autocast_cache() -> Iterator[None]:
    """Disable autocast's cache: a graph would keep reading cached casts of the weights and miss their changes."""
    was = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(was)
