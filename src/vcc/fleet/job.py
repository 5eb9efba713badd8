"""The work on every document: `Doing.__call__` takes a document and returns its rows, on every engine."""

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vcc.documents.document import Document
from vcc.documents.formats.gate import DEFAULT_LIMITS, Limits, file_of
from vcc.documents.isolated import DEFAULT_MEMORY, DEFAULT_SECONDS, ReadingError, read_isolated_or_here
from vcc.documents.review_table import Question, row_of
from vcc.documents.reviewing import ask_list
from vcc.documents.shipped import default_model, load_asker
from vcc.documents.text import Text
from vcc.errors import DocumentError, is_out_of_memory
from vcc.files import sha256_of
from vcc.fleet.sources import Item
from vcc.fleet.table import Row, form_rows, rows_of

if TYPE_CHECKING:
    from vcc.documents.asker import Asker
    from vcc.documents.extract.fill import Form
    from vcc.documents.index import Index

log = logging.getLogger(__name__)
FORMAT = 3  # raise it when the columns of a row, or their meaning, change
SKETCHES = 1  # raise it when the arrays of a sketch change
LIBRARIES = ("vcc-transformers", "torch", "transformers", "tokenizers", "pypdfium2", "markdown-it-py", "dateparser")


@dataclass(frozen=True)
class Job:
    """A picklable description of the work: ask every document, fill a form from it, or keep an index of it."""

    doing: Literal["ask", "index", "extract"]
    model: str | None = None
    questions: tuple[Question, ...] = ()
    top: int | None = 1  # answers to a question; None: as many as there are
    threshold: float | None = None
    store: str = ""  # the folder of indexes; "" keeps none
    limits: Limits = DEFAULT_LIMITS
    seconds: float = DEFAULT_SECONDS
    memory: int = DEFAULT_MEMORY
    schema: str = ""  # of the forms, as JSON
    thorough: bool = False  # read every window with every question

    def settings(self) -> dict[str, Any]:
        """Everything that changes results. Limits on time and memory are left out: they only decide what fails, and a
        retry may raise them."""
        folder = default_model() if self.model is None else Path(self.model)
        files = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".txt", ".model"))
        sketches = {"sketches": SKETCHES} if self.doing == "index" else {}
        return {
            "format": FORMAT,
            **sketches,
            "doing": self.doing,
            "model": {path.name: sha256_of(path) for path in files},
            "questions": [asdict(question) for question in self.questions],
            "top": self.top,
            "threshold": self.threshold,
            "schema": self.schema,
            **({"thorough": True} if self.thorough else {}),  # as before there was a choice
            "store": self.store,
            "limits": asdict(self.limits),
            "versions": {name: _version(name) for name in LIBRARIES},
        }

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(self.settings(), sort_keys=True).encode()).hexdigest()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


@dataclass
class Done:
    """The rows of one document, and its costs, which are not part of the result."""

    item: Item
    rows: list[Row]
    seconds: float = 0.0
    tokens: int = 0

    @property
    def kind(self) -> str | None:
        """Of the error, if it is one."""
        return self.rows[0]["kind"]


@dataclass
class Doing:
    """A job with its model loaded: the function that every engine calls."""

    job: Job

    def __post_init__(self) -> None:
        load_asker(self.job.model)  # fail before the first document, not at each

    def __call__(self, item: Item) -> list[Row]:
        """The rows of one document; an error becomes a row."""
        try:
            data = item.fetch(self.job.limits)
        except DocumentError as error:
            return [failed(item, "fetch", error.rule)]
        except Exception as error:  # of any file system
            return [failed(item, "fetch", f"cannot be fetched ({type(error).__name__}: {error})")]
        digest = hashlib.sha256(hashlib.sha256(data).digest() + self.job.fingerprint.encode()).hexdigest()
        try:
            return self.rows(item, digest, self.read(data, item.file_name))
        except ReadingError as error:
            return [failed(item, error.kind, error.rule, digest)]
        except DocumentError as error:
            return [failed(item, "document", error.rule, digest)]
        except Exception as error:
            if is_out_of_memory(error):
                return [failed(item, "memory", "is too long for the memory of this machine", digest)]
            log.exception("%s", item.name)
            return [failed(item, "internal", f"{type(error).__name__}: {error}", digest)]

    def read(self, data: bytes, name: str) -> Text:
        """Read in a child process. A crash is retried once: the system may have killed it for memory used elsewhere."""
        file = file_of(data, name, self.job.limits)
        try:
            return read_isolated_or_here(file, self.job.seconds, self.job.memory, log.warning)
        except ReadingError as error:
            if error.kind != "crash":
                raise
            return read_isolated_or_here(file, self.job.seconds, self.job.memory, log.warning)

    def rows(self, item: Item, digest: str, text: Text) -> list[Row]:
        job, document = self.job, self.document(text)
        about: Row = {"document": item.name, "id": digest, "title": text.title, "notes": "\n".join(text.notes) or None}
        about |= dict.fromkeys(("kind", "error"))
        if job.doing == "index":
            index = document.index()
            if index.folder is None:
                raise DocumentError(item.name, f"its index cannot be stored in {job.store}")
            self.keep_sketch(index, document.asker())
            return [about | {"tokens": index.tokens, "place": index.folder.name}]
        if job.doing == "extract":
            return list(form_rows(about | {"tokens": document.index().tokens}, job.questions, self.form(document)))
        replies, facts = ask_list(document, job.questions, job.top, threshold=job.threshold, thorough=job.thorough)
        found = row_of(text, replies, item.name)
        return list(rows_of(about | {"tokens": facts.tokens}, job.questions, found))

    def form(self, document: Document) -> "Form":
        return document.extract(json.loads(self.job.schema), self.job.threshold)

    def keep_sketch(self, index: "Index", asker: "Asker") -> None:
        """What finding needs of a document, beside its index; the same text is sketched once."""
        from vcc.documents.finding import Sketch  # imports torch

        assert index.folder is not None
        path = sketch_path(self.job, index.folder.name)
        if not path.exists():
            Sketch.of(index, asker).save(path)

    def document(self, text: Text) -> Document:
        from vcc.documents.store import Store  # imports torch

        store = Store(Path(self.job.store), log.warning) if self.job.store else None
        return Document(text, self.job.model, store)


def sketch_path(job: Job, place: str) -> Path:
    """Where the sketch of a document is, whose index is called `place`. It outlives the index, which may make room for
    others."""
    return Path(job.store).parent / "sketches" / f"{place}.safetensors"


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Set the number of threads. A matrix product may round differently on two threads than on one: with one thread per
    process, results are bit-identical for any number of processes, and the machine is used as well."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def failed(item: Item, kind: str, error: str, digest: str | None = None) -> Row:
    return {"document": item.name, "id": digest, "kind": kind, "error": error}
