"""Store a trained model in 8 bits: half the size of its file in 16.

    python -m shipped_model.in_eight_bits --model results/both --out results/stored

The matrices of the encoder are rounded, row by row; norms, biases and heads stay as they are. The folder loads like
the one it was made from, whose other files come along.
"""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from safetensors.torch import load_file, save_file
from torch import Tensor

from vcc.commands.options import call
from vcc.errors import UsageError
from vcc.hosts.eight_bit_loading import METHOD
from vcc.hosts.eight_bit_weights import STEPS, WEIGHT, round_rows
from vcc.hosts.plain_bert import FIXED

READER, CONFIG = "model.safetensors", "config.json"
ENCODER = "bert."  # what names of its weights begin with


@dataclass(frozen=True)
class StoreOptions:
    """A model and where it goes."""

    model: Annotated[Path, "folder of `train` or `average`"]
    out: Annotated[Path, "output folder, which must not exist"]


def store(options: StoreOptions) -> None:
    """Store a trained model in 8 bits: half the size of its file in 16."""
    config = json.loads((options.model / CONFIG).read_text(encoding="utf-8"))
    if config["model_type"] != FIXED["model_type"]:
        raise UsageError(f"--model is a {config['model_type']}: it must be a {FIXED['model_type']}")
    if "quantization_config" in config:
        raise UsageError(f"--model {options.model} is stored in 8 bits already: it must be in floats")
    if options.out.exists():
        raise UsageError(f"--out {options.out} exists: it must be a new folder")
    shutil.copytree(options.model, options.out)
    save_file(rounded_weights(load_file(options.model / READER)), options.out / READER, {"format": "pt"})
    (options.out / CONFIG).write_text(json.dumps(config | {"quantization_config": {"quant_method": METHOD}}, indent=2))


def rounded_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a file, with the encoder's matrices in 8 bits."""
    stored: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if name.startswith(ENCODER) and weight.ndim == 2:
            stored[name], stored[name.removesuffix(WEIGHT) + STEPS] = round_rows(weight)
        else:
            stored[name] = weight
    return stored


if __name__ == "__main__":
    call(store, sys.argv[1:], "python -m shipped_model.in_eight_bits")
