"""The one gate that files come in by: a path, standard input or a member of an archive becomes bytes within limits."""

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
KINDS = (  # what is not a file though it has a name
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe: give - and let it feed standard input"),
    (stat.S_ISCHR, "a device, not a file"),
    (stat.S_ISBLK, "a device, not a file"),
    (stat.S_ISSOCK, "a socket, not a file"),
)


@dataclass(frozen=True)
class Limits:
    """How much is read at most, so that no file can fill the memory."""

    file_bytes: int = 500_000_000
    """Of one file."""
    unpacked_bytes: int = 1_000_000_000
    """Of all that is taken out of one archive (DOCX, EPUB)."""
    characters: int = 200_000_000
    """Of the text of one document, a folder being one."""
    nesting: int = 200
    """Folders inside folders, elements inside elements of XML."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} is {value!r}: a limit must be a whole number, at least 1")

    def for_files_of(self, file_bytes: int) -> "Limits":
        """All sizes raised, or lowered, in proportion."""
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
        self._check(source, "levels inside each other", depth, self.nesting, "--max-nesting")

    def _check(self, source: str, what: str, found: int, limit: int, option: str) -> None:
        if found > limit:
            rule = f"has {found:,} {what} or more, above the limit of {limit:,}: {option} raises it, limits= in Python"
            raise DocumentError(source, rule)


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class File:
    """The bytes of one file, what messages call it, and its suffix (".pdf", in small letters; "" if it has none)."""

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
        # Between the two looks the name may have been given to a pipe: opening one does not wait this way.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as opened:
            facts = os.fstat(descriptor)
            _check_kind(path, facts)
            limits.check_file(str(path), facts.st_size)
            return file_of(read_limited(opened, str(path), limits), str(path), limits)
    except FileNotFoundError as error:
        raise DocumentError(str(path), "no such file") from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte inside the name
        reason = getattr(error, "strerror", None) or str(error)
        raise DocumentError(str(path), f"cannot be opened ({reason})") from error


def file_of(data: bytes, name: str, limits: Limits = DEFAULT_LIMITS) -> File:
    """Bytes that came another way, an upload for example, under the same limits; the suffix of `name` counts."""
    limits.check_file(name, len(data))
    return File(data, name, Path(name).suffix.lower(), limits)


def files_below(folder: Path, limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[Path, str]]:
    """Every file below a folder in the order of the paths, hidden ones left out, with why it must not be read, or "".

    No folder is entered through a link, and a link to a file counts only if it stays inside.
    """
    inside = folder.resolve()
    waiting = [(folder, 1)]
    while waiting:
        place, depth = waiting.pop()
        if os.path.isdir(place) and not (depth > 1 and os.path.islink(place)):
            if depth > limits.nesting:
                yield place, f"folders are nested more than {limits.nesting} levels deep: --max-nesting reads them too"
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
    """Why a file of the folder `inside` must not be read because of where it leads, or ""."""
    if not os.path.islink(path):
        return ""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a link that leads to itself
        return "is a link to nothing"
    if target.is_dir():
        return "is a link to a folder, and links to folders are not followed"
    return "" if target.is_relative_to(inside) else "is a link that leaves the folder"


class Archive:
    """The members of a ZIP archive. Unpacking stops when all that was read together goes over the limit."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.left = file.limits.unpacked_bytes
        try:
            self.zip = zipfile.ZipFile(io.BytesIO(file.data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise DocumentError(file.source, f"is a broken DOCX, EPUB or ZIP file ({error})") from error
        self.names = frozenset(self.zip.namelist())

    def read(self, name: str) -> File:
        """One member. What an archive says of the sizes inside it is not believed."""
        found, limits = bytearray(), self.file.limits
        with self.zip.open(name) as member:
            while chunk := member.read(CHUNK):
                found += chunk
                self.left -= len(chunk)
                limits.check_unpacked(self.file.source, limits.unpacked_bytes - self.left)
        return File(bytes(found), self.file.source, Path(name).suffix.lower(), limits)


def zip_names(file: File) -> frozenset[str]:
    """The names of the files inside a ZIP archive; none where the file is no such archive."""
    return Archive(file).names if file.data.startswith(ZIP) else frozenset()


def read_limited(opened: IO[bytes], source: str, limits: Limits) -> bytes:
    """All there is, but no more than the limit: files can grow while they are read, and some tell no size."""
    found = bytearray()
    while chunk := opened.read(CHUNK):
        found += chunk
        limits.check_file(source, len(found))
    return bytes(found)


def _check_kind(path: Path, facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        kind = next((kind for is_kind, kind in KINDS if is_kind(facts.st_mode)), "not a regular file")
        raise DocumentError(str(path), f"is {kind}")
