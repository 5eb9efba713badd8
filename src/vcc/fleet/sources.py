"""List the documents in folders, patterns, lists, and tables with a text column.

Everything is opened with fsspec, so a path may be on S3 or any other store it supports ("s3://bucket/contracts").
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from vcc.documents.formats.gate import DEFAULT_LIMITS, Limits, files_below, link_problem, open_file, read_limited
from vcc.documents.formats.read import FORMATS
from vcc.errors import DataError, UsageError

SUFFIXES = tuple(sorted(suffix for format in FORMATS for suffix in format.suffixes))


@dataclass(frozen=True)
class Item:
    """One document.

    `name` is its name in the table. `stamp` changes with its content. For a row of a table, `row` is its number and
    `offset` the start of its line, if it has one.
    """

    name: str
    path: str
    size: int  # bytes
    stamp: str
    row: int = -1
    offset: int = -1
    column: str = ""

    def fetch(self, limits: Limits = DEFAULT_LIMITS) -> bytes:
        """Its bytes: from a regular file within the limits, standard input, or a row of a table."""
        if self.row < 0 and "://" not in self.path:
            return open_file(self.path, limits).data
        if self.row < 0:
            system, path = fsspec.core.url_to_fs(self.path)
            if isinstance(system, LocalFileSystem):
                return open_file(path, limits).data
            with system.open(path, "rb") as file:
                return read_limited(file, self.name, limits)
        if self.offset >= 0:
            with fsspec.open(self.path, "rb") as file:
                file.seek(self.offset)
                return _bytes(json.loads(file.readline())[self.column])
        group, first = _group_of(self.path, self.row)
        return _bytes(_texts(self.path, group, self.column)[self.row - first])

    @property
    def file_name(self) -> str:
        """The name for format readers: a row of a table is plain text."""
        return self.name if self.row < 0 else f"{self.name}.txt"


@dataclass(frozen=True)
class Listing:
    """Documents with distinct names, and skipped files with reasons."""

    items: tuple[Item, ...]
    skipped: tuple[str, ...] = ()


def find_items(sources: Sequence[str], column: str = "text", limits: Limits = DEFAULT_LIMITS) -> Listing:
    """All documents of all sources, ordered by name.

    A source is a file, a folder, a pattern such as "contracts/**/*.pdf", "@names.txt" for a file with one path per
    line, or a .parquet or .jsonl file with one document per row, its text in `column`.
    """
    found: dict[str, Item] = {}
    skipped: list[str] = []
    for source in _expanded(sources):
        if source.lower().endswith((".parquet", ".jsonl")):
            items = list(_rows(source, column))
        else:
            items, others = _files(source, limits)
            skipped += others
        for item in items:
            if found.setdefault(item.name, item) != item:
                raise UsageError(f"two documents are named {item.name!r}: {found[item.name].path} and {item.path}")
    if not found:
        known = ", ".join(SUFFIXES)
        raise DataError(f"no document of a known kind ({known}) in {', '.join(sources) or 'nothing'}")
    return Listing(tuple(found[name] for name in sorted(found)), tuple(sorted(skipped)))


def _expanded(sources: Sequence[str]) -> Iterator[str]:
    for source in sources:
        if not source.startswith("@"):
            yield source
            continue
        try:
            with fsspec.open(source[1:], "rt", encoding="utf-8") as file:
                yield from (line.strip() for line in file if line.strip() and not line.startswith("#"))
        except OSError as error:
            raise DataError(f"the list {source[1:]} cannot be opened ({error})") from error


def _files(source: str, limits: Limits) -> tuple[list[Item], list[str]]:
    """The documents of a file, folder or pattern, without hidden ones, and the skipped files with reasons."""
    system, path = fsspec.core.url_to_fs(source)
    path = path.rstrip("/") or path
    if any(sign in path for sign in "*?[") and not system.exists(path):
        fixed = path[: min(path.index(sign) for sign in "*?[" if sign in path)]
        root = fixed.rpartition("/")[0]
        paths = [(place, _problem(system, place, root)) for place in system.glob(path)]
    elif system.isdir(path):
        root, paths = path, _below(system, path, limits)
    elif system.exists(path):
        return [_item(system, path, source)], []
    else:
        raise DataError(f"{source}: no such file or folder")
    items, others = [], []
    for place, problem in paths:
        name = place[len(root) :].lstrip("/")
        if any(step.startswith(".") for step in name.split("/")) or (not problem and system.isdir(place)):
            continue
        if problem or not name.lower().endswith(SUFFIXES):
            others.append(f"{name}: {problem or 'not a document format'}")
        else:
            items.append(_item(system, place, name))
    return items, others


def _below(system: Any, folder: str, limits: Limits) -> list[tuple[str, str]]:
    """All files below a folder, each with the reason to skip it, or ""."""
    if isinstance(system, LocalFileSystem):
        return [(str(path), problem) for path, problem in files_below(Path(folder), limits)]
    return [(place, "") for place in system.find(folder)]


def _problem(system: Any, path: str, root: str) -> str:
    return link_problem(Path(path), Path(root).resolve()) if isinstance(system, LocalFileSystem) else ""


def _item(system: Any, path: str, name: str) -> Item:
    # Bytes of a name that are not UTF-8 are escaped: a table cannot hold them.
    shown = name.encode("utf-8", "backslashreplace").decode()
    return Item(shown, system.unstrip_protocol(path), int(system.size(path) or 0), str(system.ukey(path)))


def _rows(source: str, column: str) -> Iterator[Item]:
    name = source.rstrip("/").rpartition("/")[2]
    lines = _json_lines(source, column) if source.lower().endswith(".jsonl") else _parquet_rows(source, column)
    for row, (text, offset) in enumerate(lines):
        data = _bytes(text)
        stamp = hashlib.sha256(data).hexdigest()
        yield Item(f"{name}#{row:09d}", source, len(data), stamp, row, offset, column)


def _bytes(text: Any) -> bytes:
    return str(text).encode("utf-8", "replace")  # JSON may contain lone surrogates


def _json_lines(source: str, column: str) -> Iterator[tuple[str, int]]:
    offset = 0
    with fsspec.open(source, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield str(json.loads(line)[column]), offset
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    rule = f"line {number} must be a JSON object with {column!r}"
                    raise DataError(f"{source}: {rule} ({type(error).__name__}: {error})") from error
            offset += len(line)


def _parquet_rows(source: str, column: str) -> Iterator[tuple[str, int]]:
    _parquet.cache_clear()  # the file may have been replaced
    _texts.cache_clear()
    table = _parquet(source)
    if column not in table.schema_arrow.names:
        raise DataError(f"{source} has no column {column!r}: its columns are {', '.join(table.schema_arrow.names)}")
    for group in range(table.num_row_groups):
        yield from ((str(text), -1) for text in _texts(source, group, column))


@lru_cache(maxsize=4)
def _parquet(path: str) -> pq.ParquetFile:
    system, place = fsspec.core.url_to_fs(path)
    return pq.ParquetFile(system.open(place))


def _group_of(path: str, row: int) -> tuple[int, int]:
    """The row group of a row, and the number of its first row."""
    first, metadata = 0, _parquet(path).metadata
    for group in range(metadata.num_row_groups):
        after = first + metadata.row_group(group).num_rows
        if row < after:
            return group, first
        first = after
    raise DataError(f"{path} has no row {row}")


@lru_cache(maxsize=2)
def _texts(path: str, group: int, column: str) -> list[Any]:
    return _parquet(path).read_row_group(group, columns=[column]).column(0).to_pylist()
