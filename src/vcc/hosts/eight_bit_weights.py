"""Matrices in 8 bits: whole numbers from -127 to 127, and for each row the step between two of them.

A linear layer has a row for each output, an embedding one for each word. In a file, the steps of `x.weight` are
`x.steps`.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

LEVELS = 127  # on either side of 0
WEIGHT, STEPS = "weight", "steps"


def round_rows(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of a matrix (E, D) in 8 bits, and their steps (E,). What is restored rounds to the same numbers."""
    matrix = matrix.float()
    steps = matrix.abs().amax(1).clamp(min=1e-20) / LEVELS
    return (matrix / steps[:, None]).round().to(torch.int8), steps


def restore_rows(name: str, values: Tensor, steps: Tensor) -> Tensor:
    """The inverse of `round_rows`, up to rounding, in 32 bits. `name`: of the matrix, for errors."""
    if values.dtype != torch.int8:
        raise ValueError(f"{name} is {values.dtype}: stored in 8 bits, it must be torch.int8")
    if steps.shape != values.shape[:1]:
        raise ValueError(f"{name} has {tuple(steps.shape)} steps: there must be one per row of {tuple(values.shape)}")
    return values.float() * steps.float()[:, None]


def restored(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a file, with its matrices in 8 bits restored to 32."""
    steps_of = {name.removesuffix(STEPS) + WEIGHT: name for name in weights if name.endswith(f".{STEPS}")}
    if alone := {name for name, weight in weights.items() if weight.dtype == torch.int8} ^ steps_of.keys():
        raise ValueError(f"{min(alone)} is stored in part: it must have numbers in torch.int8 and {STEPS}")
    return {
        name: restore_rows(name, weight, weights[steps_of[name]]) if name in steps_of else weight
        for name, weight in weights.items()
        if name not in steps_of.values()
    }
