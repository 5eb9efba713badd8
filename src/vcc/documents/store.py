"""Indexes on disk, so that a document is read once: a folder for each, named by the hashes of its text and its model.

A folder is written aside and renamed, so it is whole or absent, also when several processes write it at once. What does
not verify, or belongs to another text or model, is not used but replaced. Where nothing can be written the document is
read all the same, and that is said. Tensors are safetensors, memory-mapped; loading them never runs code.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from vcc.core.tree import SegmentTree, check_scales
from vcc.documents.formats.gate import Limits, open_file
from vcc.documents.text import Text
from vcc.errors import DocumentError
from vcc.files import cache_folder, force, sha256_of, write_whole

if TYPE_CHECKING:
    from vcc.documents.asker import Asker, Index, Progress

FORMAT = 3  # raised when the tensors change their meaning
ASIDE = ".writing-"
MANIFEST, TENSORS = "manifest.json", "index.safetensors"
# The files of an index; those of a document longer than memory are raw numbers (`vcc.documents.archive`).
FILES = re.compile(
    r"manifest\.json|index\.safetensors|ids|offsets|[a-z]+\.json|means|(differences|counts|positions)\.?\d*"
)
MANIFEST_LIMITS = Limits(file_bytes=1_000_000)
IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
DAY = 24 * 3600.0
MOST_BYTES = 20_000_000_000  # of all indexes together; the ones not asked for longest go first


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
    tokenizer = json.loads(asker.tokenizer.backend_tokenizer.to_str())
    rules = {name: part for name, part in tokenizer.items() if name not in ("padding", "truncation")}  # change in use
    digest.update(json.dumps(rules, sort_keys=True).encode())
    for name, tensor in sorted(asker.model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(memoryview(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()))
    return digest.hexdigest()


@dataclass(frozen=True)
class Store:
    """The indexes in a folder; None: there is no place for them. `tell` hears why an index could not be kept."""

    folder: Path | None
    tell: Callable[[str], None] = field(default=lambda problem: None, compare=False)
    most_bytes: int = MOST_BYTES

    def get(self, text: Text, asker: "Asker", progress: "Progress" = lambda done, total: None) -> "Index":
        """The text's index for this model: the stored one if it is good, else a new one, which is then stored."""
        if self.folder is None:
            self.tell("no index is kept: there is no home folder, and XDG_CACHE_HOME names no other")
            return asker.index(text, progress)
        model = model_hash(asker)
        path = self.place(text.sha256, model)
        try:
            index = load(path, text, model, asker.model.device)
        except DamagedError:
            index = asker.index(text, progress)
            try:
                save(path, text, model, index)
                self.tidy(path)
            except (OSError, SafetensorError) as error:  # the disk is full, the folder may not be written, ...
                self.tell(f"no index is kept in {self.folder}: {error}")
        else:
            with suppress(OSError):
                os.utime(path)  # when it was last asked for
        return index

    def place(self, sha256: str, model: str) -> Path:
        assert self.folder is not None
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

    def tidy(self, kept: Path) -> None:
        """Remove what interrupted writing left more than a day ago and, over the limit, what was not asked for longest;
        never `kept`.
        """
        by_age: list[tuple[float, Path, int]] = []
        for path in self._folders():
            with suppress(OSError):  # another process may tidy, too
                changed = path.stat().st_mtime
                if not path.name.startswith(ASIDE):
                    by_age.append((changed, path, size_of(path)))
                elif changed < time.time() - DAY:
                    shutil.rmtree(path, ignore_errors=True)
        over = sum(size for _, _, size in by_age) - self.most_bytes
        for _, path, size in sorted(by_age):
            if over > 0 and path != kept:
                shutil.rmtree(path, ignore_errors=True)
                over -= size

    def clear(self) -> tuple[int, int]:
        """Remove all indexes and what interrupted writing has left: how many, and their bytes."""
        folders = list(self._folders())
        size = sum(map(size_of, folders))
        for path in folders:
            shutil.rmtree(path)
        return len(folders), size

    def _folders(self) -> Iterator[Path]:
        """Only what this store has made: a folder of ours may hold other things too."""
        if self.folder is None or not self.folder.is_dir():
            return
        with os.scandir(self.folder) as found:
            names = sorted(entry.name for entry in found if entry.is_dir(follow_symlinks=False))
        for name in names:
            if name.startswith(ASIDE) or (len(name) == 32 and set(name) <= set("0123456789abcdef")):
                path = self.folder / name
                with suppress(OSError):
                    if all(FILES.fullmatch(file) or file.startswith(ASIDE) for file in os.listdir(path)):
                        yield path


def default_store(tell: Callable[[str], None] = lambda problem: None) -> Store:
    try:
        return Store(cache_folder() / "indexes", tell)
    except RuntimeError:  # the user has no home
        return Store(None, tell)


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
        write_whole(aside / MANIFEST, json.dumps({**about, "seal": seal(about)}, indent=1))
        move_in(aside, path)
    except BaseException:  # Ctrl-C too
        shutil.rmtree(aside, ignore_errors=True)
        raise


def move_in(aside: Path, path: Path, tries: int = 20) -> None:
    """Rename a folder; whatever is in its place is moved out of the way first, whole, so that of several processes that
    do this at once each either finds the place free or has moved something away itself.
    """
    for left in reversed(range(tries)):
        try:
            return os.rename(aside, path)
        except OSError as error:
            if not left or error.errno not in IN_THE_WAY:
                raise
        away = Path(tempfile.mkdtemp(prefix=ASIDE, dir=path.parent))
        with suppress(FileNotFoundError):  # another process was faster
            os.rename(path, away / TENSORS)  # a folder, a file or a link
        shutil.rmtree(away, ignore_errors=True)


def seal(about: dict[str, Any]) -> str:
    """Over all else that a manifest says."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def load(path: Path, text: Text, model: str, device: torch.device) -> "Index":
    """The index at `path`, if it is that of this text and model and every byte is as it was written."""
    about = read_manifest(path)
    written = about.pop("seal", None)
    expected = {"format": FORMAT, "text": text.sha256, "model": model}
    for name, value in expected.items():
        if about.get(name) != value:
            raise DamagedError(f"{path}: its {name} is {about.get(name)!r}, not {value!r}")
    try:
        if written != seal(about) or not stat.S_ISREG((path / TENSORS).lstat().st_mode):
            raise DamagedError(f"{path}: it is not what was written")
        if sha256_of(path / TENSORS) != about.get("sha256"):
            raise DamagedError(f"{path}: {TENSORS} is not what was written")
        index = from_tensors(load_file(path / TENSORS, device=str(device)), about)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise DamagedError(f"{path}: {error}") from error
    if index.offsets.shape != (about.get("tokens"), 2) or index.offsets.max() > len(text.text):
        raise DamagedError(f"{path}: offsets of shape {index.offsets.shape} do not fit the text")
    if index.ids.shape != (index.tokens,):
        raise DamagedError(f"{path}: {len(index.ids)} tokens, not {index.tokens}")
    return index


def read_manifest(path: Path) -> dict[str, Any]:
    try:
        if path.is_symlink():
            raise DamagedError(f"{path} is a link, not a folder")
        about = json.loads(open_file(path / MANIFEST, MANIFEST_LIMITS).data)
    except (OSError, ValueError, RecursionError, DocumentError) as error:
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
    check_scales(scales)
    depths = range(len(scales))
    tree = SegmentTree(
        scales,
        int(about["length"]),
        parts["means"],
        tuple(parts[f"differences.{depth}"] for depth in depths[:-1]),
        tuple(parts[f"counts.{depth}"] for depth in depths),
        tuple(parts[f"positions.{depth}"] for depth in depths),
    )
    nodes = [tree.counts[0].shape[1], *(part.shape[1] for part in tree.differences)]
    if [count * scale for count, scale in zip(nodes, scales, strict=True)] != [nodes[0] * scales[0]] * len(scales):
        raise ValueError(f"nodes {nodes} do not fit the scales {scales}")
    if not 0 <= nodes[0] * scales[0] - tree.length < scales[0]:
        raise ValueError(f"length {tree.length} does not fit {nodes[0]} nodes of {scales[0]}")
    return Index(tree, parts["offsets"].cpu().numpy(), parts["ids"].cpu().numpy(), 0.0)


def size_of(path: Path) -> int:
    """Of the files in a folder; what another process removes meanwhile is not counted."""
    size = 0
    with suppress(OSError), os.scandir(path) as files:
        for file in files:
            size += file.stat(follow_symlinks=False).st_size
    return size
