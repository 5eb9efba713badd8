"""The gate for all input: a path, standard input or an archive member becomes bytes, within limits."""

import io
import os
import stat
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from vcc.errors import DocumentError, UsageError

STDIN = "standard input"
ZIP = b"PK\x03\x04"
CHUNK = 1 << 20
KINDS = (  # not regular files
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe: give - and redirect it to standard input"),
    (stat.S_ISCHR, "a device, not a file"),
    (stat.S_ISBLK, "a device, not a file"),
    (stat.S_ISSOCK, "a socket, not a file"),
)


@dataclass(frozen=True)
class Limits:
    """Limits on what is read: no file can exhaust memory."""

    file_bytes: int = 500_000_000
    """Of one file."""
    unpacked_bytes: int = 1_000_000_000
    """Of everything unpacked from one archive (DOCX, EPUB)."""
    characters: int = 200_000_000
    """Of the text of one document; a folder is one document."""
    nesting: int = 200
    """Depth of nested folders and XML elements."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} is {value!r}: it must be a whole number of at least 1")

    def for_files_of(self, file_bytes: int) -> "Limits":
        """These limits with all sizes scaled to a file size."""
        sizes = {
            name: max(1, getattr(self, name) * file_bytes // self.file_bytes)
            for name in ("unpacked_bytes", "characters")
        }
        return replace(self, file_bytes=file_bytes, **sizes)

    def check_file(self, source: str, size: int) -> None:
        self._check(source, "bytes", size, self.file_bytes, "--max-size")

    def check_unpacked(self, source: str, size: int) -> None:
        self._check(source, "unpacked bytes", size, self.unpacked_bytes, "--max-size")

    def check_characters(self, source: str, number: int) -> None:
        self._check(source, "characters", number, self.characters, "--max-size")

    def check_nesting(self, source: str, depth: int) -> None:
        self._check(source, "nested levels", depth, self.nesting, "--max-nesting")

    def _check(self, source: str, what: str, found: int, limit: int, option: str) -> None:
        if found > limit:
            rule = f"has {found:,} {what} or more, above the limit of {limit:,}: {option} raises it, limits= in Python"
            raise DocumentError(source, rule)


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class File:
    """The bytes of one file, its name in messages, and its lower-case suffix (".pdf", or "")."""

    data: bytes = field(repr=False)
    source: str
    suffix: str = ""
    limits: Limits = DEFAULT_LIMITS


def open_file(path: str | Path, limits: Limits = DEFAULT_LIMITS) -> File:
    """All the bytes of a regular file, or of standard input for "-"."""
    if str(path) == "-":
        return file_of(read_limited(sys.stdin.buffer, STDIN, limits), STDIN, limits)
    path = Path(path)
    try:
        _check_kind(path, path.stat())
        # The path may have become a pipe since the check: O_NONBLOCK keeps opening one from blocking.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as opened:
            facts = os.fstat(descriptor)
            _check_kind(path, facts)
            limits.check_file(str(path), facts.st_size)
            return file_of(read_limited(opened, str(path), limits), str(path), limits)
    except FileNotFoundError as error:
        raise DocumentError(str(path), "no such file") from error
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise DocumentError(str(path), f"cannot be opened ({reason})") from error


def file_of(data: bytes, name: str, limits: Limits = DEFAULT_LIMITS) -> File:
    """Bytes from elsewhere, such as an upload, under the same limits; the suffix is that of `name`."""
    limits.check_file(name, len(data))
    return File(data, name, Path(name).suffix.lower(), limits)


def files_below(folder: Path, limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[Path, str]]:
    """Every file below a folder, sorted by path and without hidden ones, each with the reason to skip it, or "".

    Links to folders are not followed; links to files must stay inside the folder.
    """
    inside = folder.resolve()
    waiting = [(folder, 1)]
    while waiting:
        place, depth = waiting.pop()
        if os.path.isdir(place) and not (depth > 1 and os.path.islink(place)):
            if depth > limits.nesting:
                yield place, f"folders are nested more than {limits.nesting} levels deep: --max-nesting raises this"
                continue
            try:
                names = sorted(name for name in os.listdir(place) if not name.startswith("."))
            except OSError as error:
                yield place, f"cannot be opened ({error.strerror})"
                continue
            waiting += [(place / name, depth + 1) for name in reversed(names)]
        else:
            yield place, link_problem(place, inside)


def link_problem(path: Path, inside: Path) -> str:
    """Why a link in the folder `inside` must not be followed, or ""."""
    if not os.path.islink(path):
        return ""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a link to itself
        return "is a broken link"
    if target.is_dir():
        return "is a link to a folder, which is not followed"
    return "" if target.is_relative_to(inside) else "is a link that leaves the folder"


class Archive:
    """The members of a ZIP archive, with one limit on their total unpacked size."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.left = file.limits.unpacked_bytes
        try:
            self.zip = zipfile.ZipFile(io.BytesIO(file.data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise DocumentError(file.source, f"is a broken DOCX, EPUB or ZIP file ({error})") from error
        self.names = frozenset(self.zip.namelist())

    def read(self, name: str) -> File:
        """Read one member. The sizes an archive declares are not trusted."""
        found, limits = bytearray(), self.file.limits
        with self.zip.open(name) as member:
            while chunk := member.read(CHUNK):
                found += chunk
                self.left -= len(chunk)
                limits.check_unpacked(self.file.source, limits.unpacked_bytes - self.left)
        return File(bytes(found), self.file.source, Path(name).suffix.lower(), limits)


def zip_names(file: File) -> frozenset[str]:
    """The names of the files in a ZIP archive; empty for other files."""
    return Archive(file).names if file.data.startswith(ZIP) else frozenset()


def read_limited(opened: IO[bytes], source: str, limits: Limits) -> bytes:
    """Read all, up to the limit: files can grow while they are read, and some report no size."""
    found = bytearray()
    while chunk := opened.read(CHUNK):
        found += chunk
        limits.check_file(source, len(found))
    return bytes(found)


def _check_kind(path: Path, facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        kind = next((kind for is_kind, kind in KINDS if is_kind(facts.st_mode)), "not a regular file")
        raise DocumentError(str(path), f"is {kind}")
