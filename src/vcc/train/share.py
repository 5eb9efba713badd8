"""How many inputs VCC compressed: a model with `dense_below` runs short ones through the untouched model."""

from dataclasses import dataclass
from typing import Any

from vcc.hosts.forward.wrapped import Wrapped
from vcc.train.processes import gathered


@dataclass(frozen=True)
class Share:
    """Inputs that were compressed, and all that were read."""

    compressed: int = 0
    inputs: int = 0

    @staticmethod
    def of(model: Any) -> "Share":
        """The counts since the model was made; zero for an unwrapped model."""
        return Share(*model.vcc_share()) if isinstance(model, Wrapped) else Share()

    def __add__(self, other: "Share") -> "Share":
        return Share(self.compressed + other.compressed, self.inputs + other.inputs)

    def __sub__(self, other: "Share") -> "Share":
        return Share(self.compressed - other.compressed, self.inputs - other.inputs)

    @property
    def percent(self) -> float:
        return 100 * self.compressed / max(self.inputs, 1)

    def __str__(self) -> str:
        return f"compressed: {self.compressed:,} of {self.inputs:,} inputs ({self.percent:.1f}%)"


def of_all_processes(share: Share) -> Share:
    return sum(gathered(share), Share())
