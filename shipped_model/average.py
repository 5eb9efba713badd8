"""Average models that were trained from one start: weights of the reader and of the head that judges.

    python -m shipped_model.average --models results/third,results/fourth --out results/both

The mean of two students that saw different shares of contracts keeps what each of them does best.
"""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from vcc.commands.options import call
from vcc.errors import UsageError
from vcc.qa.verdicts import FILE as VERDICTS

READER = "model.safetensors"


@dataclass(frozen=True)
class AverageOptions:
    """The models and their mean."""

    models: Annotated[tuple[Path, ...], "folders of `train`, two or more"]
    out: Annotated[Path, "output folder"]


def average(options: AverageOptions) -> None:
    """Write the mean of several models; its configuration and tokenizer are those of the first."""
    if len(options.models) < 2:
        raise UsageError(f"--models has {len(options.models)}: a mean needs two or more")
    first = options.models[0]
    means = {
        name: mean_of([load_file(folder / name) for folder in options.models])
        for name in (READER, VERDICTS)
        if (first / name).is_file()
    }
    shutil.copytree(first, options.out)
    for name, weights in means.items():
        save_file(weights, options.out / name, {"format": "pt"})


def mean_of(models: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight, taken in float64 and rounded once."""
    if whole := {name for model in models for name, weight in model.items() if not weight.is_floating_point()}:
        raise UsageError(f"{min(whole)} is stored in 8 bits: average models in floats, then store their mean")
    for model in models[1:]:
        if differing := {name for name in models[0].keys() ^ model.keys()} or {
            name for name, weight in model.items() if weight.shape != models[0][name].shape
        }:
            raise UsageError(f"{min(differing)} differs between the models: they must have one architecture")
    return {
        name: torch.stack([model[name].double() for model in models]).mean(0).to(weight.dtype)
        for name, weight in models[0].items()
    }


if __name__ == "__main__":
    call(average, sys.argv[1:], "python -m shipped_model.average")
