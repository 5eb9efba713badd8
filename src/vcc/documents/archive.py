"""Texts longer than memory, such as a whole archive: indexed on disk piece by piece, and asked there.

The index takes a folder of the store like any other, so `vcc index --list` and `--clear` know it.
"""

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcc.data.features import tokenize_text
from vcc.documents.answer import Reply
from vcc.documents.asker import Asker, Index, check_wanted, facts_of
from vcc.documents.facts import Facts
from vcc.documents.store import ASIDE, MANIFEST, DamagedError, Store, model_hash, move_in, read_manifest
from vcc.documents.text import Text
from vcc.errors import DocumentError
from vcc.files import write_whole
from vcc.qa.long_tree import LongTree, ask_long, read_long
from vcc.qa.model import Progress, no_progress

FORMAT = "long 1"
LONG = 2_000_000  # characters: beyond, a tree in memory and its copy for a question take gigabytes
PIECE = 2**20  # characters tokenized at a time
IDS, OFFSETS = "ids", "offsets"

Ints = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class LongIndex:
    """A text as a model has read it, on disk."""

    tree: LongTree
    ids: Ints  # (n,) mapped
    offsets: Ints  # (n, 2) mapped
    seconds: float  # reading took; 0 where it was there
    until: Any = None  # a temporary folder that goes with this value

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.tree.folder.iterdir())


def is_long(text: Text) -> bool:
    return len(text.text) > LONG


def long_index(text: Text, asker: Asker, store: Store | None, progress: Progress = no_progress) -> LongIndex:
    """The index that is kept in the store, or a new one; without a store, one that is gone with this value."""
    if store is None or store.folder is None:  # nothing can be kept: there is no home for it
        return temporary_index(text, asker, progress)
    start, model = time.perf_counter(), model_hash(asker)
    path = store.place(text.sha256, model)
    about: dict[str, Any] = {
        "format": FORMAT,
        "text": text.sha256,
        "model": model,
        "title": text.title,
        "source": text.source,
    }
    if is_whole(path, about):
        with suppress(OSError):
            os.utime(path)  # when it was last asked for
        return opened(path)
    try:
        store.folder.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=ASIDE, dir=store.folder))
        try:
            about["tokens"] = write(text, asker, aside, progress)
            about["sizes"] = {file.name: file.stat().st_size for file in aside.iterdir()}
            write_whole(aside / MANIFEST, json.dumps(about, indent=1))
            if not is_whole(path, about):  # another process may have been faster, and is asking its own by now
                move_in(aside, path)
        finally:  # also after Ctrl-C
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:  # the disk is full, the folder may not be written, ...
        store.tell(f"no index is kept in {store.folder}: {error}")
        return temporary_index(text, asker, progress)
    store.tidy(path)
    return opened(path, time.perf_counter() - start)


def temporary_index(text: Text, asker: Asker, progress: Progress) -> LongIndex:
    """One that is gone with its value."""
    start, until = time.perf_counter(), tempfile.TemporaryDirectory(prefix="vcc-")
    write(text, asker, Path(until.name), progress)
    return opened(Path(until.name), time.perf_counter() - start, until)


def write(text: Text, asker: Asker, folder: Path, progress: Progress) -> int:
    """Tokens first, then the tree: how many tokens."""
    number = 0
    with (folder / IDS).open("wb") as ids, (folder / OFFSETS).open("wb") as offsets:
        for start, piece in pieces_of(text.text):
            tokens = tokenize_text(piece, asker.tokenizer)
            ids.write(tokens.ids.astype(np.int32).tobytes())
            offsets.write((tokens.offsets.astype(np.int64) + start).tobytes())
            number += len(tokens.ids)
    if not number:
        raise DocumentError(text.source, "holds no text that the tokenizer knows")
    read_long(asker.qa, np.memmap(folder / IDS, np.int32, "r"), folder, progress)
    return number


def opened(folder: Path, seconds: float = 0.0, until: Any = None) -> LongIndex:
    offsets = np.memmap(folder / OFFSETS, np.int64, "r").reshape(-1, 2)
    return LongIndex(LongTree(folder), np.memmap(folder / IDS, np.int32, "r"), offsets, seconds, until)


def is_whole(path: Path, about: dict[str, Any]) -> bool:
    """Whether there is an index of this text and model, with all files of the size they were written with."""
    try:
        found = read_manifest(path)
        same = all(found.get(name) == about[name] for name in ("format", "text", "model"))
        return same and all((path / name).stat().st_size == size for name, size in found["sizes"].items())
    except (DamagedError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def pieces_of(text: str) -> Iterator[tuple[int, str]]:
    """The text in pieces that end where a word does, each with where it starts: tokenizers need many times the memory
    of their text."""
    start = 0
    while start < len(text):
        end = start + PIECE
        if end < len(text):
            blanks = re.compile(r"\s").finditer(text, max(start + 1, end - 2**14), end)
            end = max((blank.start() for blank in blanks), default=end)
        yield start, text[start:end]
        start = end


def ask_archive(
    asker: Asker,
    text: Text,
    index: LongIndex,
    questions: Sequence[str],
    top: int = 3,
    progress: Progress = no_progress,
    threshold: float | None = None,
) -> tuple[tuple[Reply, ...], Facts]:
    """As `Asker.ask`."""
    check_wanted(top, threshold)
    start = time.perf_counter()
    asked = ask_long(asker.qa, index.tree, index.ids, [asker.qa.ids_of(one) for one in questions], top, progress)
    view = Index(index.tree.open(), index.offsets, index.ids, index.seconds)
    return asker.replies(text, view, questions, asked, top, threshold), facts_of(view, asked, start)
