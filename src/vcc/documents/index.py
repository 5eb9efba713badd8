"""The index of a document: what a model needs to answer questions, in memory or, for long texts, on disk.

The length of the text chooses the kind; callers treat both alike. Each kind writes its own files; their folder and
manifest belong to the store (`vcc.documents.store`).
"""

import re
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from vcc.core.tree import SegmentTree
from vcc.data.features import tokenize_text
from vcc.documents.packed_tree import PackedTree
from vcc.documents.text import Text
from vcc.documents.unread import unread
from vcc.encode import Watch
from vcc.errors import DocumentError, Failure, UsageError
from vcc.files import force, sha256_of
from vcc.qa.long_tree import LongTree, best_spans_on_disk, read_long, read_pieces
from vcc.qa.model import Asked, Progress, QaModel, no_progress

LONG = 2_000_000  # characters; above, a tree in memory and its copy for a question take gigabytes
PIECE = 2**20  # characters tokenized at a time
TENSORS, IDS, OFFSETS, MEANS = "index.safetensors", "ids", "offsets", "means"
NO_TOKENS = "holds no text that the tokenizer knows"

Ints = NDArray[np.integer]
Floats = NDArray[np.floating]


class RemovedIndexError(Failure):
    """The files of an index were removed during use."""


class TemporaryFolder:
    """A folder that is removed with this object, unless it was renamed before."""

    def __init__(self, parent: Path | None = None, prefix: str = "vcc-") -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))  # readable by the user only
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class Index(Protocol):
    """A document as read by a model."""

    format: ClassVar[int | str]  # of its files

    @property
    def tokens(self) -> int: ...

    @property
    def seconds(self) -> float:
        """Time to read the document; 0 for a stored index."""

    @property
    def offsets(self) -> Ints:
        """(n, 2) first and last + 1 character of each token of the document."""

    @property
    def ids(self) -> Ints:
        """(n,) those tokens."""

    @property
    def folder(self) -> Path | None:
        """Where it is stored, if it is."""

    def spans(self, qa: QaModel, questions: Sequence[Ints], top: int = 1, progress: Progress = no_progress) -> Asked:
        """The best spans for each question, as tokens. Raises `RemovedIndexError` if its files are gone."""

    def write(self, folder: Path) -> dict[str, Any]:
        """Write its files to a folder and return their entries for the manifest."""

    def kept_in(self, folder: Path) -> "Index":
        """The same index with its files in `folder`."""


@dataclass(frozen=True, eq=False)
class MemoryIndex:
    """An index in memory; its files only serve to open it again."""

    format: ClassVar[int | str] = 4  # raised when the tensors' meaning changes

    packed: PackedTree | None  # of the document and the special tokens around or after it; None: a short text
    offsets: Ints
    ids: Ints
    seconds: float
    folder: Path | None = None

    @property
    def tokens(self) -> int:
        return len(self.offsets)

    @property
    def tree(self) -> SegmentTree | None:
        """The tree in 32 bits, made anew: a question needs it for a moment. None: a short text."""
        return None if self.packed is None else self.packed.tree()

    @classmethod
    @torch.inference_mode()
    def read(
        cls, text: Text, qa: QaModel, progress: Progress = no_progress, place: TemporaryFolder | None = None
    ) -> "MemoryIndex":
        """Read a text, a piece at a time."""
        start = time.perf_counter()
        tokens = tokenize_text(text.text, qa.tokenizer)
        if not len(tokens.ids):
            raise DocumentError(text.source, NO_TOKENS)
        kept = are_read(tokens.offsets, unread(text))
        ids, offsets = (tokens.ids[kept], tokens.offsets[kept]) if kept.any() else (tokens.ids, tokens.offsets)
        tree = None if qa.is_short(len(ids)) else PackedTree.of(read_pieces(qa, ids, qa.config, progress))
        return cls(tree, offsets, ids, time.perf_counter() - start)

    @torch.inference_mode()
    def read_tree(self, qa: QaModel) -> SegmentTree:
        """Return the tree; that of a short text, which questions seldom need, is read now."""
        return qa.read([self.ids]) if self.packed is None else self.packed.tree(qa.device)

    def spans(
        self,
        qa: QaModel,
        questions: Sequence[Ints],
        top: int = 1,
        progress: Progress = no_progress,
        watch: Watch | None = None,
        *,
        thorough: bool = False,
    ) -> Asked:
        # Some tokens cover no characters of their own.
        blank = self.offsets[:, 0] >= self.offsets[:, 1]
        tree = None if self.packed is None else self.packed.tree(qa.device)
        return qa.best_spans(
            tree, self.ids, questions, top, blank if blank.any() else None, watch, progress, thorough=thorough
        )

    def write(self, folder: Path) -> dict[str, Any]:
        """Tensors are safetensors: loading them never runs code."""
        numbers = {OFFSETS: self.offsets, IDS: self.ids}
        parts = {name: torch.as_tensor(np.ascontiguousarray(part, np.int32)) for name, part in numbers.items()}
        shape = {}
        if self.packed is not None:
            parts |= self.packed.parts
            shape = {"scales": list(self.packed.scales), "length": self.packed.length, "width": self.packed.width}
        save_file({name: part.contiguous() for name, part in parts.items()}, folder / TENSORS)
        force(folder / TENSORS)
        return shape | {"sha256": sha256_of(folder / TENSORS)}

    def kept_in(self, folder: Path) -> "MemoryIndex":
        return replace(self, folder=folder)

    @classmethod
    def load(cls, folder: Path, about: Mapping[str, Any], text: Text, device: torch.device) -> "MemoryIndex":
        """The index in a folder; any error if a byte differs from what was written."""
        if not stat.S_ISREG((folder / TENSORS).lstat().st_mode) or sha256_of(folder / TENSORS) != about["sha256"]:
            raise ValueError(f"{TENSORS} is not what was written")
        parts = load_file(folder / TENSORS)
        offsets, ids = (parts.pop(name).numpy() for name in (OFFSETS, IDS))
        scales = tuple(int(scale) for scale in about.get("scales", ()))
        packed = PackedTree(scales, int(about["length"]), int(about["width"]), parts) if scales else None
        index = cls(packed, offsets, ids, 0.0, folder)
        if index.offsets.shape != (about["tokens"], 2) or index.offsets.max() > len(text.text):
            raise ValueError(f"offsets of shape {index.offsets.shape} do not fit the text")
        if index.ids.shape != (index.tokens,):
            raise ValueError(f"{len(index.ids)} tokens, not {index.tokens}")
        return index


@dataclass(frozen=True, eq=False)
class DiskIndex:
    """An index on disk, written and asked in pieces: for texts larger than memory."""

    format: ClassVar[int | str] = "long 4"

    tree: LongTree
    offsets: Ints  # mapped
    ids: Ints  # mapped
    seconds: float
    folder: Path | None = None
    temporary: TemporaryFolder | None = None  # holds its files until they are stored

    @property
    def tokens(self) -> int:
        return len(self.offsets)

    @classmethod
    def read(
        cls, text: Text, qa: QaModel, progress: Progress = no_progress, place: TemporaryFolder | None = None
    ) -> "DiskIndex":
        """Read a text into files in `place`: first the tokens, then the tree."""
        start, place = time.perf_counter(), place or TemporaryFolder()
        try:
            write_tokens(text, qa, place.path)
            read_long(qa, np.memmap(place.path / IDS, np.int32, "r"), place.path, progress)
        except BaseException:  # Ctrl-C too
            place.remove()
            raise
        return cls.opened(place.path, time.perf_counter() - start, temporary=place)

    @classmethod
    def opened(cls, files: Path, seconds: float = 0.0, **place: Any) -> "DiskIndex":
        offsets = np.memmap(files / OFFSETS, np.int64, "r").reshape(-1, 2)
        return cls(LongTree(files), offsets, np.memmap(files / IDS, np.int32, "r"), seconds, **place)

    def spans(self, qa: QaModel, questions: Sequence[Ints], top: int = 1, progress: Progress = no_progress) -> Asked:
        try:
            return best_spans_on_disk(qa, self.tree, self.ids, questions, top, progress)
        except FileNotFoundError as error:
            raise RemovedIndexError(f"the index in {self.tree.folder} was removed during use") from error

    def write(self, folder: Path) -> dict[str, Any]:
        """Its files are already there: gigabytes are written only once, where the text was read to."""
        if folder != self.tree.folder:
            raise ValueError(f"the files of an index are in {self.tree.folder} and cannot be written to {folder}")
        return {"sizes": {file.name: file.stat().st_size for file in folder.iterdir()}}

    def kept_in(self, folder: Path) -> "DiskIndex":
        return self.opened(folder, self.seconds, folder=folder)

    @classmethod
    def load(cls, folder: Path, about: Mapping[str, Any], text: Text, device: torch.device) -> "DiskIndex":
        """The index in a folder; any error if the size of a file differs from what was written."""
        for name, size in about["sizes"].items():
            if (folder / name).lstat().st_size != size:
                raise ValueError(f"{name} is not what was written")
        return cls.opened(folder, folder=folder)


def kind_for(text: Text) -> type[MemoryIndex] | type[DiskIndex]:
    return DiskIndex if len(text.text) > LONG else MemoryIndex


def check_can_be_shown(text: Text) -> None:
    """Raise if a text is too long for `vcc see`, before it is read."""
    if kind_for(text) is not MemoryIndex:
        raise UsageError(f"{text.source}: {len(text.text):,} characters are too many to show; see a part of it")


def check_can_be_read_thoroughly(text: Text) -> None:
    """Raise if a text is too long for reading every window with every question."""
    if kind_for(text) is not MemoryIndex:
        found = f"has {len(text.text):,} characters: at most {LONG:,} are read thoroughly"
        raise DocumentError(text.source, found)


def write_tokens(text: Text, qa: QaModel, folder: Path) -> None:
    """Write tokens and offsets as raw numbers, in pieces."""
    number, skipped = 0, unread(text)
    with (folder / IDS).open("wb") as ids, (folder / OFFSETS).open("wb") as offsets:
        for start, piece in pieces_of(text.text):
            tokens = tokenize_text(piece, qa.tokenizer)
            places = tokens.offsets.astype(np.int64) + start
            kept = are_read(places, skipped)
            ids.write(tokens.ids[kept].astype(np.int32).tobytes())
            offsets.write(places[kept].tobytes())
            number += int(kept.sum())
    if not number:
        raise DocumentError(text.source, NO_TOKENS)


def are_read(offsets: Ints, skipped: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """(n,) whether each token starts outside the stretches that are not read."""
    edges = np.array(skipped, np.int64).reshape(-1)  # start, end, start, ...: inside after an odd number of them
    return np.searchsorted(edges, offsets[:, 0], side="right") % 2 == 0


def pieces_of(text: str) -> Iterator[tuple[int, str]]:
    """Pieces of the text that end at word ends, with their starts: tokenizers need many times their text's memory."""
    start = 0
    while start < len(text):
        end = start + PIECE
        if end < len(text):
            blanks = re.compile(r"\s").finditer(text, max(start + 1, end - 2**14), end)
            end = max((blank.start() for blank in blanks), default=end)
        yield start, text[start:end]
        start = end
