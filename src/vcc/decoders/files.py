"""A document's trees in one safetensors file: keyed by model and text, mapped into memory, checked before use."""

import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers.cache_utils import DynamicCache

from vcc.decoders.layer import TreeLayer
from vcc.decoders.tree import KeyTree
from vcc.errors import DocumentError, UsageError
from vcc.files import force

FORMAT = "vcc-decoder-document-1"
WHOLE = 256 * 2**20  # bytes up to which a file is checked to the last byte unless told otherwise
SAMPLE = 64  # numbers of each weight that go into a model's fingerprint
LEAVES = ("tree.keys", "tree.values")  # what may be large: read only where a node is opened


def save_cache(path: Path, model: Any, ids: Tensor, cache: DynamicCache) -> None:
    """Write under another name beside it, then rename: the file is whole or absent."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} cannot be written: it is there, and not a regular file")
    tensors, layers = {"ids": ids.cpu()}, []
    for number, layer in enumerate(cache.layers):
        parts, facts = tensors_of(layer)
        tensors |= {f"{number}.{name}": part.detach().cpu().contiguous() for name, part in parts.items()}
        layers.append(facts)
    about = {
        "format": FORMAT,
        "model": fingerprint(model),
        "text": text_key(ids),
        "settings": model.vcc.to_dict(),
        "layers": layers,
        "checks": {name: checksum(tensor) for name, tensor in tensors.items()},
    }
    descriptor, aside = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
    os.close(descriptor)
    try:
        save_file(tensors, aside, {"vcc": json.dumps(about)})
        force(Path(aside))
        os.replace(aside, path)
    except BaseException:  # Ctrl-C too
        Path(aside).unlink(missing_ok=True)
        raise


def load_cache(
    path: Path, model: Any, cache: DynamicCache, leaves: str | None, verify: bool | None
) -> tuple[Tensor, DynamicCache]:
    """Fill an empty cache of the model from a file. -> the text's ids, the cache."""
    if leaves not in (None, "disk", "cpu", "device"):
        raise UsageError(f'leaves={leaves!r}: it must be "disk", "cpu" or "device"')
    leaves = leaves or ("disk" if model.device.type == "cpu" else "device")
    about, tensors = open_file(path)
    if about["model"] != fingerprint(model):
        raise DocumentError(str(path), "it was read by another model: other weights, or another configuration")
    if about["settings"] != model.vcc.to_dict():
        changed = [key for key, value in model.vcc.to_dict().items() if about["settings"].get(key) != value]
        if {"scales", "first", "local", "fresh", "piece", "order", "spread"} & set(changed):
            raise DocumentError(
                str(path), f"its tree was built with other settings than the model's; {changed} differ: "
                "wrap the model with those it was saved with, or read the text again"
            )  # fmt: skip
    if verify is None:
        verify = path.stat().st_size <= WHOLE
    for name, tensor in tensors.items():
        large = name.partition(".")[2] in LEAVES
        if (verify or not large) and checksum(tensor) != about["checks"].get(name):
            raise DocumentError(str(path), f"it is damaged: {name} is not what was saved")
    ids = tensors["ids"]
    if text_key(ids) != about["text"] or len(about["layers"]) != len(cache.layers):
        raise DocumentError(str(path), "it is damaged: its text or its layers are not those it was saved with")
    for number, (layer, facts) in enumerate(zip(cache.layers, about["layers"], strict=True)):
        own = {
            name.removeprefix(f"{number}."): tensor for name, tensor in tensors.items() if name.startswith(f"{number}.")
        }
        fill(layer, own, facts, model, leaves)
    return ids.to(model.device), cache


def open_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a file says of itself, and its tensors, which are mapped and not read."""
    if not path.is_file():
        raise DocumentError(str(path), "there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("vcc", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
    except (SafetensorError, ValueError, OSError) as error:
        raise DocumentError(str(path), f"it is no whole safetensors file: {error}") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise DocumentError(str(path), "it holds no document that a decoder has read")
    return about, tensors


def tensors_of(layer: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A cache layer as named tensors, and what else must be known of it."""
    if not isinstance(layer, TreeLayer):
        return {"keys": layer.keys, "values": layer.values}, {"seen": layer.cumulative_length}
    tree = layer.tree
    parts = {
        "keys": layer.keys,
        "values": layer.values,
        "columns": layer.columns,
        "live": layer.live,
        "tree.keys": tree.keys,
        "tree.values": tree.values,
        "tree.columns": tree.columns,
    }
    parts |= {f"tree.key_means.{i}": means for i, means in enumerate(tree.key_means)}
    parts |= {f"tree.value_means.{i}": means for i, means in enumerate(tree.value_means)}
    parts |= {f"tree.spreads.{i}": spread for i, spread in enumerate(tree.spreads)}
    return parts, {"length": layer.length, "tokens": layer.tokens.tolist(), "lengths": list(tree.lengths)}


def fill(layer: Any, parts: dict[str, Tensor], facts: dict[str, Any], model: Any, leaves: str) -> None:
    """The inverse of `tensors_of`, on the model's device; the leaves where they are asked for."""
    device, dtype = model.device, model.dtype
    rows = {name: part.to(device) for name, part in parts.items() if not name.startswith("tree.")}
    if rows["keys"].dtype != dtype:
        raise UsageError(f"the document was read in {rows['keys'].dtype}, the model computes in {dtype}")
    layer.lazy_initialization(rows["keys"], rows["values"])
    layer.keys, layer.values = rows["keys"], rows["values"]
    if not isinstance(layer, TreeLayer):
        layer.cumulative_length = facts["seen"]
        return
    layer.columns, layer.live, layer.length = rows["columns"], rows["live"], facts["length"]
    layer.tokens, layer.in_tree = (torch.tensor(facts[name], device="cpu") for name in ("tokens", "lengths"))

    def placed(tensor: Tensor) -> Tensor:
        if leaves == "cpu":  # pinned, kernels of a GPU can read them
            return tensor.pin_memory() if device.type == "cuda" else tensor.clone()
        return tensor.to(device) if leaves == "device" else tensor

    above = range(len(layer.settings.scales) - 1)
    layer.tree = KeyTree(
        layer.settings.scales,
        placed(parts["tree.keys"]),
        placed(parts["tree.values"]),
        placed(parts["tree.columns"]),
        tuple(parts[f"tree.key_means.{i}"].to(device) for i in above),
        tuple(parts[f"tree.value_means.{i}"].to(device) for i in above),
        tuple(parts[f"tree.spreads.{i}"].to(device) for i in above),
        tuple(facts["lengths"]),
    )


def checksum(tensor: Tensor) -> int:
    return zlib.crc32(tensor.contiguous().view(-1).view(torch.uint8).numpy().data) if tensor.numel() else 0


def text_key(ids: Tensor) -> str:
    return hashlib.sha256(ids.cpu().to(torch.int64).contiguous().numpy().tobytes()).hexdigest()


def fingerprint(model: Any) -> str:
    """Of a model's configuration and weights: a few numbers of each weight, which any training changes."""
    config = {
        key: value
        for key, value in model.config.to_diff_dict().items()
        if key not in ("vcc", "dtype", "transformers_version", "_name_or_path", "architectures", "use_cache")
    }
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, weight in model.state_dict().items():
        flat = weight.detach().view(-1)
        sample = flat[:: max(1, len(flat) // SAMPLE)].cpu()
        digest.update(f"{name} {tuple(weight.shape)} {sample.dtype}".encode())
        digest.update(sample.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
