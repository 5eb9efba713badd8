"""The documents of a service on disk: a sub-folder per document, with names we generate, never a user's."""

import json
import re
import secrets
import shutil
import stat
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
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


class UnknownDocumentError(Failure):
    """No document has this id, or it was deleted."""


class FullError(Failure):
    """The folder is full."""


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


class Library:
    """All documents. Entries are in memory and on disk, so they survive a restart."""

    def __init__(self, folder: Path, kept_bytes: int, kept_hours: float) -> None:
        self.folder, self.kept_bytes, self.kept_hours = folder / "documents", kept_bytes, kept_hours
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.store = Store(folder / "indexes", most_bytes=round(FOR_INDEXES * kept_bytes))
        self.lock = threading.Lock()
        self.entries: dict[str, LibraryEntry] = {}
        for path in sorted(self.folder.iterdir()):
            try:
                about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
                entry = LibraryEntry(**{**about, "notes": tuple(about["notes"])})
                if entry.id != path.name or not ID.fullmatch(entry.id) or not (path / ORIGINAL).is_file():
                    raise ValueError(path)
                self.entries[entry.id] = entry
            except (OSError, ValueError, TypeError, KeyError):  # half-written when the service was killed
                shutil.rmtree(path, ignore_errors=True)

    def add(self, data: bytes, name: str) -> LibraryEntry:
        """Store a new document under a generated name."""
        self._check_room(len(data))
        shown = printable(Path(name.replace("\\", "/")).name)[:NAME_LENGTH] or "document"
        entry = LibraryEntry(secrets.token_hex(16), shown, len(data), PDF in data[:1024], time.time())
        path = self.folder / entry.id
        path.mkdir(mode=0o700)
        write_whole(path / ORIGINAL, data)
        self.put(entry)
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
        return text_from_values(json.loads(path.read_text(encoding="utf-8")))

    def keep_text(self, id: str, text: Text) -> None:
        data = text_to_json(text)
        self._check_room(len(data))
        write_whole(self.folder / self.get(id).id / TEXT, data)
        self.change(id, sha256=text.sha256)

    def delete(self, id: str, index: Path | None = None) -> None:
        """Remove a document and its files; its index only if no other document has the same text."""
        with self.lock:
            entry = self.get(id)
            del self.entries[entry.id]
            shutil.rmtree(self.folder / entry.id, ignore_errors=True)
        if index is not None:
            shutil.rmtree(index, ignore_errors=True)

    def too_old(self) -> list[str]:
        oldest = time.time() - self.kept_hours * 3600
        return [entry.id for entry in self.all() if entry.uploaded < oldest]

    def _check_room(self, more: int) -> None:
        most = round((1 - FOR_INDEXES) * self.kept_bytes)
        if size_below(self.folder) + more > most:
            raise FullError(f"the service has reached its limit of {most:,} bytes: delete some documents")

    def size(self) -> int:
        """Bytes in the folder, including indexes."""
        return size_below(self.folder.parent)


def size_below(folder: Path) -> int:
    """The total size of files, ignoring files deleted meanwhile."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            found = path.lstat()
            size += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return size
