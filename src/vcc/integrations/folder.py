"""`vcc.folder`: find and ask among the documents of a folder, from Python."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vcc.errors import UsageError

if TYPE_CHECKING:
    from vcc.documents.answer import Answer
    from vcc.fleet.collection import Collection
    from vcc.fleet.job import Job

INSTALL = "pip install 'vcc-transformers[documents]'"


class FolderMatch(NamedTuple):
    """A document that matches a question. Matches compare within one question only."""

    document: str  # its name below the folder
    path: str
    match: float


class FolderAnswer(NamedTuple):
    """An answer, and the document that holds it."""

    document: str
    answer: "Answer"


class Folder:
    """The documents of a folder, each read once. Made by `vcc.folder`; it does not follow later changes."""

    def __init__(self, collection: "Collection", job: "Job", failed: list[str]) -> None:
        self.collection, self.job = collection, job
        self.failed = failed  # documents that could not be read, each with the reason

    def __len__(self) -> int:
        return len(self.collection.catalogue)

    def find(self, question: str, top: int = 10) -> list[FolderMatch]:
        """Return the documents that match a question best, best first."""
        from vcc.documents.shipped import load_asker

        check(question, top=top)
        hits = self.collection.find(load_asker(self.job.model), question, top)
        return [FolderMatch(hit.item.name, hit.item.path.removeprefix("file://"), hit.score) for hit in hits]

    def ask(self, question: str, top: int = 1, documents: int = 10) -> list[FolderAnswer]:
        """Ask the documents that match a question best, and return the best answers of all, best first."""
        from vcc.documents.shipped import load_asker
        from vcc.fleet.collection import best_answers

        check(question, top=top, documents=documents)
        asked = list(self.collection.answers_to(question, load_asker(self.job.model), self.job, top, documents))
        return [FolderAnswer(one.document, answer) for answer, one in best_answers(asked, top)]


def folder(path: str | Path, model: str | None = None) -> Folder:
    """Read what is new or changed in a folder, and return it ready for `find` and `ask`.

    What was read is kept, by the content of each file, and shared with `vcc index`, `vcc find` and `vcc ask`: a second
    call reads only the files that came or changed, and forgets those that are gone. `path` may be remote, as for the
    commands.
    """
    try:
        from vcc.documents.store import default_store
        from vcc.fleet.collection import collect
        from vcc.fleet.job import Job
        from vcc.fleet.run import Executor
        from vcc.fleet.sources import find_items
    except ImportError as error:
        raise UsageError(f"a folder needs {error.name}: {INSTALL}") from error
    source = str(path)
    if "://" not in source and not Path(source).is_dir():
        raise UsageError(f"{source} is not a folder")
    store, items = default_store(), find_items([source]).items
    job = Job("index", model, store="" if store.folder is None else str(store.folder))
    collection, _ = collect(job, source, items, store, Executor(0, one_thread=False))
    return Folder(collection, job, collection.failed)


def check(question: str, **counts: int) -> None:
    if not isinstance(question, str) or not question.strip():
        raise UsageError(f"question {question!r} holds no word")
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"{name} is {count}: it must be at least 1")
