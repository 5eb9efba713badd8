"""The documents that another program may use: those below the folders that a user named, and no others."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from vcc.documents.answer import Reply
from vcc.documents.document import Document
from vcc.documents.formats.gate import DEFAULT_LIMITS, Limits, file_of, files_below
from vcc.documents.formats.read import suffixes
from vcc.documents.isolated import DEFAULT_MEMORY, DEFAULT_SECONDS, read_file_isolated, read_isolated_or_here
from vcc.documents.shipped import load_asker
from vcc.documents.store import Store
from vcc.documents.text import Text
from vcc.errors import DocumentError, UsageError
from vcc.printable import printable
from vcc.qa.model import Progress

OPEN = 32  # documents kept in memory
LONGEST_PATH = 4096  # characters


class Shelf(Protocol):
    """Documents under the names that a caller may use."""

    def names(self, folder: str) -> list[str]:
        """The documents of a folder; "" is all there are."""

    def text(self, name: str) -> Text:
        """What a document says."""

    def tokens(self, name: str, progress: Progress) -> int:
        """Let the model read a document, if it has not: the number of its tokens."""

    def replies(self, name: str, questions: Sequence[str], top: int, progress: Progress) -> Sequence[Reply]:
        """Ask a document."""

    def relevance(self, question: str, names: Sequence[str]) -> list[float]:
        """How relevant documents are to a question."""


class FolderShelf:
    """The files below some folders. A path outside them raises, whether or not there is a file."""

    def __init__(
        self,
        folders: Sequence[Path],
        model: str | None = None,
        store: Store | None = None,
        limits: Limits = DEFAULT_LIMITS,
        seconds: float = DEFAULT_SECONDS,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        if not folders:
            raise UsageError("no folder: name at least one")
        for folder in folders:
            if not folder.is_dir():
                raise UsageError(f"{printable(str(folder))} must be a folder")
        self.folders = tuple(folder.resolve() for folder in folders)
        self.model, self.store, self.limits, self.seconds, self.memory = model, store, limits, seconds, memory
        self.open: dict[tuple[Path, int, int], Document] = {}  # by path, time of change and size

    def path(self, name: str) -> Path:
        """The file or folder that a caller means: absolute, or relative to one of the folders."""
        if len(name) > LONGEST_PATH or "\0" in name:
            raise UsageError(f"the path is not valid: it must have at most {LONGEST_PATH:,} characters, none of them 0")
        for folder in self.folders:
            try:
                found = (folder / name).resolve()
            except (OSError, RuntimeError, ValueError):  # a loop of links, a name that is too long
                continue
            if any(found.is_relative_to(one) for one in self.folders) and _exists(found):
                return found
        shown = ", ".join(map(str, self.folders))
        raise UsageError(f"{printable(name)[:200]!r}: there is no such file below {shown}; paths outside are not read")

    def names(self, folder: str) -> list[str]:
        places = [self.path(folder)] if folder else self.folders
        for place in places:
            if not place.is_dir():
                raise UsageError(f"{printable(folder)[:200]!r} is a file: name a folder, or leave it out")
        known = suffixes()
        return [
            str(path)
            for place in places
            for path, problem in files_below(place, self.limits)
            if not problem and path.suffix.lower() in known
        ]

    def document(self, name: str) -> Document:
        path = self.path(name)
        if path.is_dir():
            raise UsageError(f"{printable(name)[:200]!r} is a folder: name one of its files, or call find")
        try:
            facts = path.stat()
        except OSError as error:
            raise DocumentError(str(path), f"cannot be opened ({error.strerror})") from error
        key = (path, facts.st_mtime_ns, facts.st_size)
        if key not in self.open:
            text = read_file_isolated(path, self.limits, self.seconds, self.memory)
            self.open[key] = Document(text, self.model, self.store)
            while len(self.open) > OPEN:
                del self.open[next(iter(self.open))]
        return self.open[key]

    def text(self, name: str) -> Text:
        return self.document(name).content

    def tokens(self, name: str, progress: Progress) -> int:
        return self.document(name).index(progress=progress).tokens

    def replies(self, name: str, questions: Sequence[str], top: int, progress: Progress) -> Sequence[Reply]:
        document = self.document(name)
        document.read(progress=progress)
        return document.answer(questions, top, progress=progress)[0]

    def relevance(self, question: str, names: Sequence[str]) -> list[float]:
        from vcc.documents.ranking import relevance

        return relevance(load_asker(self.model), question, [self.text(name).text for name in names])


def read_texts(paths: Sequence[str]) -> list[Text]:
    """The texts of files, folders or patterns; `source` is the path of each."""
    from vcc.fleet.sources import find_items  # needs fsspec and pyarrow

    texts = []
    for item in find_items(paths).items:
        file = file_of(item.fetch(), item.file_name)
        text = read_isolated_or_here(file, DEFAULT_SECONDS, DEFAULT_MEMORY, warnings.warn)
        texts.append(replace(text, source=item.path.removeprefix("file://")))
    return texts


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
