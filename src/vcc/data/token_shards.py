"""Tokens written shard by shard: an interrupted run goes on behind the last shard that reached the disk.

All shards are appended to one file, and the ends of their documents to another. After each shard `progress` says
how much of the two files counts. Whatever stands behind that is cut off when the folder is opened again.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from vcc.files import force, write_whole

SHARD = 2**23  # characters of text: enough work for all threads of a tokenizer, and some 300 MB while it is tokenized
ENDS_SO_FAR, PROGRESS = "ends.bin", "progress"  # not .json: a corpus may hold this folder
EVERY = 10.0  # seconds between two lines on progress
Item = TypeVar("Item")


def in_shards(items: Iterable[Item], size_of: Callable[[Item], int], most: int = SHARD) -> Iterator[list[Item]]:
    """Lists of items in order, each as long as its sizes stay below `most`, and of one item at least."""
    shard: list[Item] = []
    size = 0
    for item in items:
        shard.append(item)
        size += size_of(item)
        if size >= most:
            yield shard
            shard, size = [], 0
    if shard:
        yield shard


@dataclass
class TokenShards:
    """A folder that is being filled. `tokens` and `documents` count what has reached the disk."""

    folder: Path
    dtype: str
    made_of: dict[str, Any]
    out: IO[bytes]
    ends: IO[bytes]
    tokens: int = 0
    documents: int = 0
    notes: dict[str, Any] = field(default_factory=dict)  # of the caller

    @staticmethod
    def open(folder: Path, name: str, dtype: str, made_of: dict[str, Any]) -> "TokenShards":
        """Go on where the folder was left, or begin anew if it was made of something else or cannot be read."""
        made_of = json.loads(json.dumps(made_of))
        try:
            there = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
            if there["made_of"] != made_of:
                raise ValueError("made of something else")
            tokens, documents, notes = int(there["tokens"]), int(there["documents"]), dict(there["notes"])
            sizes = tokens * np.dtype(dtype).itemsize, documents * 8
            if (folder / name).stat().st_size < sizes[0] or (folder / ENDS_SO_FAR).stat().st_size < sizes[1]:
                raise ValueError("shorter than it was")
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            tokens, documents, notes, sizes = 0, 0, {}, (0, 0)
        files = [(folder / file).open("ab") for file in (name, ENDS_SO_FAR)]
        for file, size in zip(files, sizes, strict=True):
            file.truncate(size)
        return TokenShards(folder, dtype, made_of, files[0], files[1], tokens, documents, notes)

    def __enter__(self) -> "TokenShards":
        return self

    def __exit__(self, *_: Any) -> None:
        self.out.close()
        self.ends.close()

    def note(self, notes: dict[str, Any]) -> None:
        self.notes = json.loads(json.dumps(notes))
        self.commit()

    def add(
        self,
        texts: Iterator[str],
        tokenize: Callable[[Sequence[str]], Sequence[Any]],
        end_mark: int,
        say: Callable[[str], None],
    ) -> None:
        """Append the tokens of all texts, each followed by the end mark. The texts of the first `documents` documents
        are there already, and are skipped."""
        began = said = time.perf_counter()
        before = self.tokens
        for shard in in_shards(islice(texts, self.documents, None), len):
            found = [np.append(ids, end_mark).astype(self.dtype) for ids in tokenize(shard)]
            ends = self.tokens + np.cumsum([len(ids) for ids in found], dtype=np.int64)
            self.out.write(np.concatenate(found).tobytes())
            self.ends.write(ends.tobytes())
            self.tokens, self.documents = int(ends[-1]), self.documents + len(found)
            self.commit()
            if time.perf_counter() - said > EVERY:
                said = time.perf_counter()
                say(self.speed(before, said - began))
        if self.tokens > before:
            say(self.speed(before, time.perf_counter() - began))

    def speed(self, before: int, seconds: float) -> str:
        rate = (self.tokens - before) / max(seconds, 1e-9)
        return f"tokenized {self.tokens:,} tokens of {self.documents:,} documents, {rate:,.0f} tokens/s"

    def commit(self) -> None:
        for file in (self.out, self.ends):
            file.flush()
            os.fsync(file.fileno())
        progress = {
            "made_of": self.made_of,
            "tokens": self.tokens,
            "documents": self.documents,
            "notes": self.notes,
        }
        write_whole(self.folder / PROGRESS, json.dumps(progress))

    def finish(self, name: str) -> None:
        """Save the ends as an array under this name, and leave nothing else but the tokens."""
        self.ends.close()
        np.save(self.folder / name, np.fromfile(self.folder / ENDS_SO_FAR, dtype=np.int64))
        force(self.folder / name)
        for file in (ENDS_SO_FAR, PROGRESS):
            (self.folder / file).unlink()
