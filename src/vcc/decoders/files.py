"""A document's trees in one safetensors file: keyed by model and text, mapped into memory, checked before use.

The file's metadata is a JSON text and its SHA-256. The JSON has the name, type, shape and checksum of every tensor:
nothing in the file is used, not even a shape, before it is verified.
"""

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

from vcc.decoders.cache import TreeCache
from vcc.decoders.config import DecoderConfig
from vcc.decoders.layer import TreeLayer
from vcc.decoders.outside import OutsideRows
from vcc.decoders.tree import KeyTree, trimmed
from vcc.errors import DocumentError, UsageError
from vcc.files import force

FORMAT = "vcc-decoder-document-2"
WHOLE = 256 * 2**20  # bytes; larger files are not checked completely by default
SAMPLE = 64  # numbers of each weight in a model's fingerprint
LEAVES = ("tree.keys", "tree.values")  # large, and read only for opened nodes


def save_cache(path: Path, model: Any, ids: Tensor, cache: TreeCache) -> None:
    """Write under a temporary name, then rename: the file is complete or absent."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} cannot be written: it exists and is not a regular file")
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
        "tensors": {name: [*form_of(tensor), checksum(tensor)] for name, tensor in tensors.items()},
    }
    header = json.dumps(about)
    descriptor, aside = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
    os.close(descriptor)
    try:
        save_file(tensors, aside, {"vcc": header, "sha256": sha256(header)})
        force(Path(aside))
        os.replace(aside, path)
    except BaseException:  # Ctrl-C too
        Path(aside).unlink(missing_ok=True)
        raise


def load_cache(path: Path, model: Any, leaves: str | None, verify: bool | None) -> tuple[Tensor, TreeCache]:
    """Load a file for the model that read it. -> the text's ids (1, n), the cache."""
    if leaves not in (None, "disk", "cpu", "device"):
        raise UsageError(f'leaves={leaves!r}: it must be "disk", "cpu" or "device"')
    leaves = leaves or ("disk" if model.device.type == "cpu" else "device")
    about, tensors = open_saved(path)
    if about["model"] != fingerprint(model):
        raise DocumentError(str(path), "it was read by another model: other weights, or another configuration")
    changed = model.vcc.other_tree(DecoderConfig.from_dict(about["settings"]))
    if changed:
        raise DocumentError(
            str(path), f"its tree was built with other settings than the model's; {changed} differ: "
            "wrap the model with those it was saved with, or read the text again"
        )  # fmt: skip
    if verify is None:
        verify = path.stat().st_size <= WHOLE
    for name, tensor in tensors.items():
        large = name.partition(".")[2] in LEAVES
        if (verify or not large) and checksum(tensor) != about["tensors"][name][-1]:
            raise DocumentError(str(path), f"it is damaged: {name} is not what was saved")
    layers = []
    for number, (layer, facts) in enumerate(zip(model.new_cache().layers, about["layers"], strict=True)):
        mine = f"{number}."
        own = {name.removeprefix(mine): tensor for name, tensor in tensors.items() if name.startswith(mine)}
        layers.append(layer_of(own, facts, layer, model, leaves))
    return tensors["ids"].to(model.device), TreeCache(layers)


def open_saved(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A file's header and its mapped tensors, with verified names, types and shapes."""
    if not path.is_file():
        raise DocumentError(str(path), "no such file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
    except (SafetensorError, ValueError, TypeError, RuntimeError, OSError) as error:
        raise DocumentError(str(path), f"it is not a complete safetensors file: {error}") from error
    header = metadata.get("vcc")
    if header is None:
        raise DocumentError(str(path), "it is not a saved decoder document")
    if metadata.get("sha256") != sha256(header):
        raise DocumentError(str(path), "it is damaged or of another version: its header is not what was saved")
    about = json.loads(header)  # as we wrote it
    if about["format"] != FORMAT:
        raise DocumentError(str(path), f"its format is {about['format']}, not {FORMAT}: read the text again")
    if {name: form_of(tensor) for name, tensor in tensors.items()} != {
        name: form for name, (*form, _) in about["tensors"].items()
    }:
        raise DocumentError(str(path), "it is damaged: its tensors are not those that were saved")
    return about, tensors


def tensors_of(layer: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A cache layer as named tensors and plain values."""
    if not isinstance(layer, TreeLayer):
        return {"keys": layer.keys, "values": layer.values}, {"seen": layer.cumulative_length}
    tree, rows = trimmed(layer.tree), layer.rows
    parts = {
        "keys": rows.keys,
        "values": rows.values,
        "columns": rows.columns,
        "live": rows.live,
        "tree.keys": tree.keys,
        "tree.values": tree.values,
        "tree.columns": tree.columns,
    }
    parts |= {f"tree.key_means.{i}": means for i, means in enumerate(tree.key_means)}
    parts |= {f"tree.value_means.{i}": means for i, means in enumerate(tree.value_means)}
    parts |= {f"tree.spreads.{i}": spread for i, spread in enumerate(tree.spreads)}
    return parts, {"length": layer.length, "tokens": layer.counts.tokens.tolist(), "lengths": list(tree.lengths)}


def layer_of(parts: dict[str, Tensor], facts: dict[str, Any], empty: Any, model: Any, leaves: str) -> Any:
    """The inverse of `tensors_of`, on the model's device; leaves are where requested. `empty` is a layer of the same
    kind."""
    device, dtype = model.device, model.dtype
    rows = {name: part.to(device) for name, part in parts.items() if not name.startswith("tree.")}
    if rows["keys"].dtype != dtype:
        raise UsageError(f"the document was read in {rows['keys'].dtype}, the model computes in {dtype}")
    if not isinstance(empty, TreeLayer):
        empty.lazy_initialization(rows["keys"], rows["values"])
        empty.keys, empty.values, empty.cumulative_length = rows["keys"], rows["values"], facts["seen"]
        return empty

    def placed(tensor: Tensor) -> Tensor:
        if leaves == "cpu":  # pinned: GPU kernels can read them
            return tensor.pin_memory() if device.type == "cuda" else tensor.clone()
        return tensor.to(device) if leaves == "device" else tensor

    above = range(len(empty.settings.scales) - 1)
    tree = KeyTree(
        empty.settings.scales,
        placed(parts["tree.keys"]),
        placed(parts["tree.values"]),
        placed(parts["tree.columns"]),
        tuple(parts[f"tree.key_means.{i}"].to(device) for i in above),
        tuple(parts[f"tree.value_means.{i}"].to(device) for i in above),
        tuple(parts[f"tree.spreads.{i}"].to(device) for i in above),
        tuple(facts["lengths"]),
    )
    outside = OutsideRows(rows["keys"], rows["values"], rows["columns"], rows["live"])
    tokens = torch.tensor(facts["tokens"], device="cpu")
    return TreeLayer.restored(empty.settings, outside, tree, tokens, facts["length"])


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def form_of(tensor: Tensor) -> list[Any]:
    """A tensor's type and shape for JSON."""
    return [str(tensor.dtype), list(tensor.shape)]


def checksum(tensor: Tensor) -> int:
    return zlib.crc32(tensor.contiguous().view(-1).view(torch.uint8).numpy().data) if tensor.numel() else 0


def text_key(ids: Tensor) -> str:
    return hashlib.sha256(ids.cpu().to(torch.int64).contiguous().numpy().tobytes()).hexdigest()


def fingerprint(model: Any) -> str:
    """A hash of a model's configuration and a sample of each weight, which any training changes."""
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
