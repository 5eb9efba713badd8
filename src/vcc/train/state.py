"""Training state as files without code: tensors in safetensors, everything else in JSON.

`save_state` and `load_state` are inverses on nested dicts, lists and tuples of tensors, arrays, numbers, strings and
None. Writing anything else raises.
"""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor


def save_state(folder: Path, name: str, value: Any) -> None:
    """Write `value` as `name.json` and `name.safetensors`."""
    tensors: dict[str, Tensor] = {}
    plain = _pack(value, tensors)
    save_file(tensors, folder / f"{name}.safetensors")
    (folder / f"{name}.json").write_text(json.dumps(plain))


def load_state(folder: Path, name: str) -> Any:
    return _unpack(json.loads((folder / f"{name}.json").read_text()), load_file(folder / f"{name}.safetensors"))


def _pack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor | np.ndarray):
        key = str(len(tensors))
        tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value.detach()
        tensors[key] = tensor.cpu().clone().contiguous()  # a copy: safetensors rejects shared memory
        return {"array" if isinstance(value, np.ndarray) else "tensor": key}
    if isinstance(value, dict):
        return {"dict": [[_pack(key, tensors), _pack(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_pack(item, tensors) for item in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"training state holds {value!r} of type {type(value).__name__}; it may hold tensors, arrays, "
        "dicts, lists, tuples, numbers, strings and None"
    )


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    [(kind, item)] = value.items()
    if kind == "tensor":
        return tensors[item]
    if kind == "array":
        return tensors[item].numpy()
    if kind == "dict":
        return {_unpack(key, tensors): _unpack(part, tensors) for key, part in item}
    return {"list": list, "tuple": tuple}[kind](_unpack(part, tensors) for part in item)


def random_state() -> dict[str, Any]:
    """The state of all random generators: Python's, NumPy's, torch's, CUDA's."""
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state(), "cuda": cuda}


def set_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
