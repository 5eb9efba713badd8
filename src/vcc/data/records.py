"""Read published data files: JSON, JSON lines (plain, .xz, .gz, .bz2), Parquet, zips of them, or a hub data set.

Every record knows its origin, so an error names the file, the line and the rule.
"""

import bz2
import gzip
import io
import json
import lzma
import os
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from vcc.errors import DataError

ALIASES = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
_OPENERS: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}
_ENDINGS = (".jsonl", ".json", ".parquet", ".zip", ".train", ".dev", ".test")


@dataclass(frozen=True)
class Record:
    """One JSON object and its origin."""

    where: str
    fields: dict[str, Any]

    def has(self, name: str) -> bool:
        return self.fields.get(name) is not None

    def get(self, *names: str, kind: type | tuple[type, ...] = str) -> Any:
        """The first of the named fields that exists; it must be of that kind."""
        for name in names:
            if name in self.fields:
                value = self.fields[name]
                if not isinstance(value, kind):
                    wanted = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
                    raise DataError(f"{self.where}: field {name!r} is {value!r:.80}: must be {wanted}")
                return value
        raise DataError(
            f"{self.where}: must have a field {' or '.join(map(repr, names))}; "
            f"it has {', '.join(map(repr, self.fields)) or 'none'}"
        )

    def texts(self, *names: str) -> tuple[str, ...]:
        """A field that is one string or a list of strings."""
        value = self.get(*names, kind=(str, list))
        values = [value] if isinstance(value, str) else value
        for text in values:
            if not isinstance(text, str):
                raise DataError(f"{self.where}: field {names[0]!r} holds {text!r:.80}: must hold strings only")
        return tuple(values)


def load_records(name: str, split: str, source: str | None, hub: str) -> list[Record]:
    """The records of a split of a data set, from a file, a folder or the hub (see `Task.load`)."""
    if split not in ALIASES:
        raise DataError(f"split {split!r} must be one of {', '.join(ALIASES)}")
    source = source or os.environ.get("VCC_DATA") or hub
    if not source:
        raise DataError(f"{name} is not on the hub: give a file or folder, or set VCC_DATA")
    path = Path(source).expanduser()
    if path.exists():
        file = find_split(path, name, split)
        return _join_documents(list(read_records(file, split)), file)
    if path.is_absolute() or source.startswith((".", "~")) or source.endswith(_ENDINGS) or source.count("/") > 1:
        raise DataError(f"{source}: no such file or folder")
    return list(read_hub(source, name, split))


def find_split(path: Path, name: str, split: str) -> Path:
    """The one file of a split: the path itself, or in its folder `name`, or in the folder.

    A file belongs to a split if its name contains the word: `dev-v2.0.json`, `hotpot_dev_distractor_v1.json`,
    `train_subset.jsonl.xz`. `<name>.zip` holds its splits inside. A name that is exactly the split wins.
    """
    if path.is_file():
        return path
    for folder in (path / name, path):
        if not folder.is_dir():
            continue
        files = sorted(file for file in folder.iterdir() if file.is_file() and _ending(file))
        archive = [file for file in files if file.name == f"{name}.zip"]
        exact = [file for file in files if file.name.split(".")[0].lower() in ALIASES[split]]
        loose = [file for file in files if set(re.findall("[a-z]+", file.name.lower())) & set(ALIASES[split])]
        found = exact or archive or loose
        if len(found) > 1:
            raise DataError(
                f"{folder}: {', '.join(file.name for file in found)} all look like the {split} split "
                f"of {name}: name the one file instead"
            )
        if found:
            return found[0]
    folder = path / name if (path / name).is_dir() else path
    there = ", ".join(sorted(file.name for file in folder.iterdir())[:20])
    raise DataError(
        f"{folder}: no {split} split of {name}: must hold {name}/{split}.jsonl.xz, {split}.jsonl, "
        f"{name}.zip or the published file; it holds {there or 'nothing'}"
    )


def read_records(path: Path, split: str = "") -> Iterator[Record]:
    """Every object of one file; in a zip, of the member for the split."""
    ending = _ending(path)
    if ending == ".parquet":
        yield from _read_parquet(path)
    elif ending == ".zip":
        with zipfile.ZipFile(path) as archive:
            words = set(ALIASES.get(split, (split,)))
            inside = [
                n
                for n in archive.namelist()
                if not n.endswith("/")
                and not n.startswith("__MACOSX")
                and words & set(re.findall("[a-z]+", n.rsplit("/", 1)[-1].lower()))
            ]
            if len(inside) != 1:
                raise DataError(f"{path}: must hold one {split} file; it holds {', '.join(archive.namelist())}")
            with archive.open(inside[0]) as raw:
                yield from _parse(io.TextIOWrapper(raw, "utf-8"), f"{path}/{inside[0]}", inside[0].endswith(".json"))
    else:
        with open_text(path) as lines:
            yield from _parse(lines, str(path), ending == ".json")


def open_text(path: Path) -> IO[str]:
    """Open a text file, decompressed by its suffix."""
    opener = _OPENERS.get(path.suffix)
    return opener(path, "rt", encoding="utf-8") if opener else path.open(encoding="utf-8")


def _join_documents(records: list[Record], path: Path) -> list[Record]:
    """Records with a `doc_id` get their `document` from `docs.jsonl*` beside the file: one string, shared by all."""
    shared = sorted(path.parent.glob("docs.jsonl*"))
    if not shared or not any(record.has("doc_id") for record in records):
        return records
    documents = {record.get("doc_id"): record.get("document") for record in read_records(shared[0])}
    for record in records:
        if record.get("doc_id") not in documents:
            raise DataError(f"{record.where}: doc_id {record.fields['doc_id']!r} must be in {shared[0]}")
        record.fields["document"] = documents[record.fields["doc_id"]]
    return records


def read_hub(source: str, name: str, split: str) -> Iterator[Record]:
    """A data set of the hub. SCROLLS is read from its zip: `datasets` no longer runs loading scripts."""
    if source != "tau/scrolls":
        return hub_rows(source, split)
    from huggingface_hub import hf_hub_download

    try:
        return read_records(Path(hf_hub_download(source, f"{name}.zip", repo_type="dataset")), split)
    except OSError as error:
        raise DataError(f"{source}: {name}.zip cannot be downloaded from the hub: {error}") from error


def hub_rows(source: str, split: str, streaming: bool = False) -> Iterator[Record]:
    """The rows of `owner/name` or `owner/name:config`; the hub's Parquet copy if the data set has a script."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise DataError(
            f"{source}: no such file or folder, and the hub needs `pip install 'vcc-transformers[train]'`"
        ) from error
    repository, _, config = source.partition(":")
    try:
        try:
            rows = load_dataset(repository, config or None, split=split, streaming=streaming)
        except RuntimeError as error:
            if "script" not in str(error):
                raise
            rows = load_dataset(
                repository, config or None, split=split, streaming=streaming, revision="refs/convert/parquet"
            )
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(f"{source}: its {split} split cannot be loaded from the hub: {error}") from error
    return (Record(f"{source}[{split}][{i}]", row) for i, row in enumerate(rows))


def _ending(path: Path) -> str:
    """The suffix of the format, without compression; "" for a file without records."""
    suffixes = [suffix for suffix in path.suffixes if suffix not in _OPENERS]
    return suffixes[-1] if suffixes and suffixes[-1] in _ENDINGS else ""


def _parse(lines: IO[str], where: str, whole: bool) -> Iterator[Record]:
    """JSON lines, or one JSON value if the file is named .json (or lines, if it holds lines)."""
    try:
        if whole:
            text = lines.read()
            try:
                value = json.loads(text)
            except json.JSONDecodeError as error:
                if error.msg != "Extra data":
                    raise DataError(f"{where}:{error.lineno}: not JSON: {error.msg}") from error
                lines = io.StringIO(text)
            else:
                rows = value if isinstance(value, list) else [value]
                yield from (_record(row, f"{where}[{i}]") for i, row in enumerate(rows))
                return
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise DataError(f"{where}:{number}: not JSON: {error.msg} at column {error.colno}") from error
                yield _record(row, f"{where}:{number}")
    except (UnicodeDecodeError, lzma.LZMAError, EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{where}: damaged, or not UTF-8 text: {error}") from error


def _record(row: Any, where: str) -> Record:
    if not isinstance(row, dict):
        raise DataError(f"{where}: {row!r:.80} must be a JSON object")
    return Record(where, row)


def _read_parquet(path: Path) -> Iterator[Record]:
    import pyarrow.parquet as pq

    i = 0
    for batch in pq.ParquetFile(path).iter_batches(batch_size=256):
        for row in batch.to_pylist():
            yield Record(f"{path}[{i}]", row)
            i += 1
