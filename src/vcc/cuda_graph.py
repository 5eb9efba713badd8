"""Work on a CUDA device as a graph: its kernels are launched together, with nothing of Python between them."""

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


def record(work: Callable[[], Result], warm_ups: int = 1) -> tuple[torch.cuda.CUDAGraph, Result]:
    """The graph of `work`, and what `work` gives, in memory that every replay writes to again.

    `work` runs so many times before, for what is compiled or asked of a library once, and once while it is recorded:
    then only what it does in Python is done.
    """
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(warm_ups):
            work()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result
