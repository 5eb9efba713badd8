"""The documents that another program may use: those below the folders that a user named, and no others."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol, TypeVar

from vcc.documents.answer import Reply
from vcc.documents.document import Document
from vcc.documents.formats.gate import DEFAULT_LIMITS, Limits, file_of, files_below
from vcc.documents.formats.read import suffixes
from vcc.documents.isolated import DEFAULT_MEMORY, DEFAULT_SECONDS, read_file_isolated, read_isolated_or_here
from vcc.documents.shipped import load_asker
from vcc.documents.store import Store
from vcc.documents.text import Text
from vcc.errors import DataError, DocumentError, UsageError
from vcc.printable import printable
from vcc.qa.model import Progress

if TYPE_CHECKING:
    from vcc.fleet.collection import Collection
    from vcc.fleet.sources import Item

OPEN = 32  # documents kept in memory
LONGEST_PATH = 4096  # characters
Got = TypeVar("Got")


@dataclass(frozen=True)
class Findings:
    """Documents with how well they match, best first, and those that could not be read, with the reasons."""

    matches: tuple[tuple[str, float], ...]
    left_out: tuple[str, ...] = ()


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

    def use(self, name: str, work: Callable[[Document], Got], progress: Progress) -> Got:
        """Do some work on a document that the model has read."""

    def find(self, question: str, folder: str, top: int, progress: Progress) -> "Findings":
        """The documents of a folder that match a question best; "" looks in all of them."""


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
        self.collections: dict[Path, tuple[tuple[Item, ...], Collection, list[str]]] = {}  # by folder

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

    def use(self, name: str, work: Callable[[Document], Got], progress: Progress) -> Got:
        document = self.document(name)
        document.read(progress=progress)
        return work(document)

    def find(self, question: str, folder: str, top: int, progress: Progress) -> Findings:
        """By the catalogue of `vcc find`: what is new in the folders is read first, the rest is not touched."""
        inside = self.path(folder) if folder else None
        if inside is not None and not inside.is_dir():
            raise UsageError(f"{printable(folder)[:200]!r} is a file: name a folder, or leave it out")
        matches: list[tuple[str, float]] = []
        left_out: list[str] = []
        for root in self.folders:
            if inside is not None and not inside.is_relative_to(root):
                continue
            collection, failed = self.collection(root, progress)
            if collection is None:
                continue
            most = top if inside in (None, root) else len(collection.catalogue)
            hits = collection.find(load_asker(self.model), question, most)
            found = [(Path(hit.item.path.removeprefix("file://")), hit.score) for hit in hits]
            matches += [(str(path), score) for path, score in found if inside is None or path.is_relative_to(inside)][
                :top
            ]
            left_out += failed
            if inside is not None:
                break
        return Findings(tuple(sorted(matches, key=lambda match: -match[1])[:top]), tuple(left_out))

    def collection(self, root: Path, progress: Progress) -> "tuple[Collection | None, list[str]]":
        """The collection of a folder as it is now, and what could not be read; None if it has no documents."""
        from vcc.fleet.collection import collect
        from vcc.fleet.job import Job
        from vcc.fleet.run import Executor
        from vcc.fleet.sources import find_items

        try:
            items = find_items([str(root)], limits=self.limits).items
        except DataError:
            return None, []
        if root not in self.collections or self.collections[root][0] != items:
            store = self.collecting
            job = Job(
                "index",
                self.model,
                store=str(store.folder),
                limits=self.limits,
                seconds=self.seconds,
                memory=self.memory,
            )
            made, _ = collect(
                job,
                str(root),
                items,
                store,
                Executor(one_thread=False),
                report=lambda tally: progress(tally.documents, tally.items),
            )
            self.collections[root] = items, made, made.failed
        _, made, failed = self.collections[root]
        return made, failed

    @cached_property
    def collecting(self) -> Store:
        """Where collections are kept; without a store, in a temporary folder that goes with this process."""
        if self.store is not None and self.store.folder is not None:
            return self.store
        self.temporary = TemporaryDirectory(prefix="vcc-mcp-")
        return Store(Path(self.temporary.name) / "indexes")


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
