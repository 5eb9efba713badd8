"""A running average of the weights, which is often better than the last weights."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

RAMP = 10  # steps within which an exponential average forgets where it started


class WeightAverage:
    """An exponential average with a decay, or a uniform one over the given steps."""

    def __init__(self, model: nn.Module, decay: float | None) -> None:
        self.decay, self.count = decay, 0
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.weights = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def add(self) -> None:
        """Add the model's weights."""
        self.count += 1
        share = 1 / self.count
        if self.decay is not None:
            share = 1 - min(self.decay, self.count / (RAMP + self.count))
        torch._foreach_lerp_(self.weights, [p.detach() for p in self.parameters], share)

    @torch.no_grad()
    def put(self) -> None:
        """Set the model's weights to the average, if there is one."""
        if self.count:
            torch._foreach_copy_(self.parameters, self.weights)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Use the average inside the block, and restore the weights after it."""
        own = [p.detach().clone() for p in self.parameters]
        self.put()
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, own)

    def state(self) -> dict[str, Any]:
        return {"count": self.count, "weights": self.weights}

    def restore(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        torch._foreach_copy_(self.weights, state["weights"])
