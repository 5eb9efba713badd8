"""Indexes on disk, so that a document is read once: a folder for each, named by the hashes of its text and its model.

A folder is written aside and renamed, so it is whole or absent. What does not verify, or belongs to another text or
model, is not used. Tensors are safetensors, memory-mapped; loading them never runs code.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from vcc.core.tree import SegmentTree
from vcc.documents.text import Text
from vcc.files import cache_folder, force, sha256_of, write_whole

if TYPE_CHECKING:
    from vcc.documents.asker import Asker, Index, Progress

FORMAT = 2  # raised when the tensors change their meaning
ASIDE = ".writing-"
MANIFEST, TENSORS = "manifest.json", "index.safetensors"


class DamagedError(Exception):
    """An index that may not be used; the message says why."""


@dataclass(frozen=True)
class Entry:
    """One index of the store."""

    path: Path
    title: str
    source: str
    tokens: int
    size: int  # bytes


def model_hash(asker: "Asker") -> str:
    """SHA-256 of all that an index depends on but the text: weights, settings, tokenizer."""
    digest = hashlib.sha256(f"index format {FORMAT}, {type(asker.model).__name__}".encode())
    settings = {"vcc": asker.model.vcc.to_dict(), "config": asker.model.config.to_dict()}
    settings["config"].pop("_name_or_path", None)  # the same model in another folder is the same
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    digest.update(asker.tokenizer.backend_tokenizer.to_str().encode())
    for name, tensor in sorted(asker.model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(memoryview(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()))
    return digest.hexdigest()


@dataclass(frozen=True)
class Store:
    """The indexes in a folder."""

    folder: Path

    def get(self, text: Text, asker: "Asker", progress: "Progress" = lambda done, total: None) -> "Index":
        """The text's index for this model: the stored one if it is good, else a new one, which is then stored."""
        model = model_hash(asker)
        path = self.place(text.sha256, model)
        try:
            return load(path, text, model, asker.model.device)
        except DamagedError:
            index = asker.index(text, progress)
            save(path, text, model, index)
            return index

    def place(self, sha256: str, model: str) -> Path:
        return self.folder / hashlib.sha256(f"{sha256} {model}".encode()).hexdigest()[:32]

    def entries(self) -> list[Entry]:
        """All indexes, by title; also those that are damaged, because they take room too."""
        return sorted(self._entries(), key=lambda entry: (entry.title, entry.path))

    def _entries(self) -> Iterator[Entry]:
        for path in self._folders():
            if path.name.startswith(ASIDE):
                continue
            try:
                about = read_manifest(path)
                title, source, tokens = str(about["title"]), str(about["source"]), int(about["tokens"])
            except (DamagedError, KeyError, TypeError, ValueError):
                title, source, tokens = "(damaged)", "", 0
            yield Entry(path, title, source, tokens, size_of(path))

    def clear(self) -> tuple[int, int]:
        """Remove all indexes and what interrupted writing has left: how many, and their bytes."""
        folders = list(self._folders())
        size = sum(map(size_of, folders))
        for path in folders:
            shutil.rmtree(path)
        return len(folders), size

    def _folders(self) -> Iterator[Path]:
        """Only what this store has made: a folder of ours may hold other things too."""
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            named = len(path.name) == 32 and set(path.name) <= set("0123456789abcdef")
            if path.is_dir() and not path.is_symlink() and (named or path.name.startswith(ASIDE)):
                yield path


def default_store() -> Store:
    return Store(cache_folder() / "indexes")


def save(path: Path, text: Text, model: str, index: "Index") -> None:
    """Write an index aside, force it to disk, and let it appear at `path` in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=ASIDE, dir=path.parent))  # only the user may look into it
    try:
        save_file(as_tensors(index), aside / TENSORS)
        about = {
            "format": FORMAT,
            "text": text.sha256,
            "model": model,
            "title": text.title,
            "source": text.source,
            "tokens": index.tokens,
            "scales": list(index.tree.scales),
            "length": index.tree.length,
            "sha256": sha256_of(aside / TENSORS),
        }
        force(aside / TENSORS)
        write_whole(aside / MANIFEST, json.dumps(about, indent=1))
        if path.exists():  # a rejected one: os.rename does not replace a full folder
            shutil.rmtree(path)
        os.rename(aside, path)
    except BaseException:  # Ctrl-C too
        shutil.rmtree(aside, ignore_errors=True)
        raise


def load(path: Path, text: Text, model: str, device: torch.device) -> "Index":
    """The index at `path`, if it is that of this text and model and every byte is as it was written."""
    about = read_manifest(path)
    expected = {"format": FORMAT, "text": text.sha256, "model": model}
    for name, value in expected.items():
        if about.get(name) != value:
            raise DamagedError(f"{path}: its {name} is {about.get(name)!r}, not {value!r}")
    try:
        if sha256_of(path / TENSORS) != about.get("sha256"):
            raise DamagedError(f"{path}: {TENSORS} is not what was written")
        index = from_tensors(load_file(path / TENSORS, device=str(device)), about)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{path}: {error}") from error
    if index.offsets.shape != (about.get("tokens"), 2) or index.offsets.max() > len(text.text):
        raise DamagedError(f"{path}: offsets of shape {index.offsets.shape} do not fit the text")
    if index.ids.shape != (index.tokens,):
        raise DamagedError(f"{path}: {len(index.ids)} tokens, not {index.tokens}")
    return index


def read_manifest(path: Path) -> dict[str, Any]:
    try:
        about = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path}: {error}") from error
    if not isinstance(about, dict):
        raise DamagedError(f"{path}: {MANIFEST} is not an object")
    return about


def as_tensors(index: "Index") -> dict[str, torch.Tensor]:
    tree = index.tree
    parts = {f"differences.{depth}": part for depth, part in enumerate(tree.differences)}
    parts |= {f"counts.{depth}": part for depth, part in enumerate(tree.counts)}
    parts |= {f"positions.{depth}": part for depth, part in enumerate(tree.positions)}
    parts |= {
        name: torch.as_tensor(np.ascontiguousarray(part))
        for name, part in (("offsets", index.offsets), ("ids", index.ids))
    }
    parts["means"] = tree.means
    return {name: part.detach().cpu().contiguous() for name, part in parts.items()}


def from_tensors(parts: dict[str, torch.Tensor], about: dict[str, Any]) -> "Index":
    from vcc.documents.asker import Index  # not needed to list or clear, and slow to import

    scales = tuple(int(scale) for scale in about["scales"])
    depths = range(len(scales))
    tree = SegmentTree(
        scales,
        int(about["length"]),
        parts["means"],
        tuple(parts[f"differences.{depth}"] for depth in depths[:-1]),
        tuple(parts[f"counts.{depth}"] for depth in depths),
        tuple(parts[f"positions.{depth}"] for depth in depths),
    )
    return Index(tree, parts["offsets"].cpu().numpy(), parts["ids"].cpu().numpy(), 0.0)


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir() if file.is_file())
