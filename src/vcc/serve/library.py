"""The documents of a service on disk: a sub-folder per document, with names we generate, never a user's."""

import errno
import json
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from vcc.documents.store import Store
from vcc.documents.text import Text
from vcc.documents.text_json import text_from_values, text_to_json
from vcc.errors import Failure
from vcc.files import write_whole
from vcc.printable import printable

State = Literal["waiting", "reading", "ready", "failed"]
ID = re.compile(r"[0-9a-f]{32}")
ABOUT, ORIGINAL, TEXT = "about.json", "original", "text.json"
PDF = b"%PDF-"
NAME_LENGTH = 200  # characters of a file's name that are kept for display
# Share of the folder's limit. An index is 20 times as large as a contract; the least recently used is evicted and made
# again on demand. Files are deleted only by users and by age.
FOR_INDEXES = 0.8
ABOUT_SIZE = 500  # bytes that count for what is known of a document
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SETTLING = 3600.0  # seconds that a service runs before it trusts a clock that says a document is too old


class UnknownDocumentError(Failure):
    """No document has this id, or it was deleted."""


class FullError(Failure):
    """There is no room: the folder holds as much as it may, or the disk is full."""

    def __init__(self, words: str, code: int = 503) -> None:
        super().__init__(words)
        self.code = code


class FolderError(Failure):
    """The folder cannot be written."""


@dataclass(frozen=True)
class LibraryEntry:
    """The record of one document."""

    id: str
    name: str  # the user's name for it: shown, never opened
    size: int  # bytes
    pdf: bool
    uploaded: float  # seconds since 1970
    state: State = "waiting"
    done: int = 0  # tokens read
    total: int = 0
    error: str = ""
    code: int = 0  # the HTTP code of the error
    title: str = ""
    characters: int = 0
    tokens: int = 0
    pages: int = 0
    notes: tuple[str, ...] = ()
    sha256: str = ""  # of its text
    text_size: int = 0  # bytes

    @property
    def kept_bytes(self) -> int:
        """What it counts against the limit, without a look into a folder that another request may delete."""
        return self.size + self.text_size + ABOUT_SIZE


class Library:
    """All documents. Entries are in memory and on disk, so they survive a restart."""

    def __init__(self, folder: Path, kept_bytes: int, kept_hours: float) -> None:
        self.folder, self.kept_bytes, self.kept_hours = folder / "documents", kept_bytes, kept_hours
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.store = Store(folder / "indexes", most_bytes=round(FOR_INDEXES * kept_bytes))
        self.lock = threading.Lock()
        self.started = (time.time(), time.monotonic())
        self.added: dict[str, float] = {}  # in this process: by the clock that does not jump
        self.arriving = 0  # bytes that are being written
        self.entries: dict[str, LibraryEntry] = {}
        for path in sorted(self.folder.iterdir()):
            try:
                entry = read_entry(path)
                self.entries[entry.id] = entry
            except (OSError, ValueError, TypeError, KeyError):  # half-written when the service was killed
                shutil.rmtree(path, ignore_errors=True)

    def add(self, data: bytes, name: str) -> LibraryEntry:
        """Keep a new document; its file is named by us. If it cannot be written, nothing of it stays."""
        shown = printable(Path(name.replace("\\", "/")).name)[:NAME_LENGTH] or "document"
        entry = LibraryEntry(secrets.token_hex(16), shown, len(data), PDF in data[:1024], time.time())
        path = self.folder / entry.id
        with self._room(entry.kept_bytes):
            try:
                path.mkdir(mode=0o700)
                write_whole(path / ORIGINAL, data)
                self.put(entry)
            except BaseException:
                shutil.rmtree(path, ignore_errors=True)
                raise
        self.added[entry.id] = time.monotonic()
        return entry

    def put(self, entry: LibraryEntry, on_disk: bool = True) -> None:
        """Update a document's entry, unless it was deleted meanwhile."""
        with self.lock:
            path = self.folder / entry.id
            if not path.is_dir():
                raise UnknownDocumentError(entry.id)
            if on_disk:
                write_whole(path / ABOUT, json.dumps(asdict(entry)))
            self.entries[entry.id] = entry

    def change(self, id: str, on_disk: bool = True, **values: Any) -> LibraryEntry:
        entry = replace(self.get(id), **values)
        self.put(entry, on_disk)
        return entry

    def get(self, id: str) -> LibraryEntry:
        if not ID.fullmatch(id) or id not in self.entries:
            raise UnknownDocumentError(f"there is no document {printable(id)[:40]!r}; it may have been deleted")
        return self.entries[id]

    def all(self) -> list[LibraryEntry]:
        return sorted(self.entries.values(), key=lambda entry: (-entry.uploaded, entry.id))

    def original(self, id: str) -> Path:
        return self.folder / self.get(id).id / ORIGINAL

    def text(self, id: str) -> Text:
        path = self.folder / self.get(id).id / TEXT
        try:
            return text_from_values(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            self.get(id)  # raises, if it was deleted meanwhile
            raise

    def keep_text(self, id: str, text: Text) -> None:
        data = text_to_json(text).encode()
        with self._room(len(data)):
            path = self.folder / self.get(id).id / TEXT
            try:
                write_whole(path, data)
            except FileNotFoundError:
                self.get(id)  # raises, if it was deleted meanwhile
                raise
            self.change(id, sha256=text.sha256, text_size=len(data))

    def delete(self, id: str) -> None:
        """Remove a document's files. Where that is not possible, the document stays in the list."""
        with self.lock:
            entry = self.get(id)
            path = self.folder / entry.id
            try:
                (path / ABOUT).unlink(missing_ok=True)  # first: without it, a start removes what is left
                while path.is_dir():
                    with suppress(FileNotFoundError):  # a file that was being written: list them again
                        shutil.rmtree(path)
            except OSError as error:
                raise FolderError(f"the document cannot be deleted: {error.strerror or error}") from error
            del self.entries[entry.id]
            self.added.pop(entry.id, None)

    def too_old(self) -> list[str]:
        """Documents to delete: too old by the system's clock, and by the time that this process has measured.

        A clock that jumps deletes nothing, nor does one that is wrong in the first hour after a start.
        """
        wall, ticks = time.time(), time.monotonic()
        first_wall, first_ticks = self.started
        if ticks - first_ticks < SETTLING:
            return []
        most = self.kept_hours * 3600

        def measured(entry: LibraryEntry) -> float:
            if entry.id in self.added:
                return ticks - self.added[entry.id]
            return first_wall + (ticks - first_ticks) - entry.uploaded

        return [entry.id for entry in self.all() if min(wall - entry.uploaded, measured(entry)) > most]

    @contextmanager
    def _room(self, more: int) -> Iterator[None]:
        """Room for so many bytes while they are written; a full disk and a read-only folder are errors with words."""
        most = round((1 - FOR_INDEXES) * self.kept_bytes)
        with self.lock:
            if self.documents_size() + self.arriving + more > most:
                raise FullError(f"the service holds {most:,} bytes of documents, its limit: delete some of them")
            self.arriving += more
        try:
            yield
        except OSError as error:
            if error.errno in NO_ROOM:
                raise FullError("the disk of the service is full: delete some documents", 507) from error
            raise FolderError(f"the service cannot write to its folder: {error.strerror or error}") from error
        finally:
            with self.lock:
                self.arriving -= more

    def documents_size(self) -> int:
        return sum(entry.kept_bytes for entry in list(self.entries.values()))

    def size(self) -> int:
        """Bytes in the folder, indexes too."""
        return self.documents_size() + self.store.size()


def read_entry(path: Path) -> LibraryEntry:
    """What is known of the document in a folder, also if another version of the service has written it."""
    about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
    known = {field.name for field in fields(LibraryEntry)} & about.keys()
    entry = LibraryEntry(**{**{name: about[name] for name in known}, "notes": tuple(about["notes"])})
    if entry.id != path.name or not ID.fullmatch(entry.id) or not (path / ORIGINAL).is_file():
        raise ValueError(path)
    for left in path.glob(".writing-*"):
        left.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        entry = replace(entry, text_size=(path / TEXT).stat().st_size)
    return entry
