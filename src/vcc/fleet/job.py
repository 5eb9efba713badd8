"""What is done with every document. One function, `Doing.__call__`: a document in, its rows out, whoever runs it."""

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vcc.documents.formats.gate import USUAL, Limits
from vcc.documents.isolated import ReadingError, read_isolated
from vcc.documents.review_table import Question, named, row_of
from vcc.documents.shipped import default_model, load_asker
from vcc.documents.text import Text
from vcc.errors import DocumentError, is_out_of_memory
from vcc.files import sha256_of
from vcc.fleet.sources import Item
from vcc.fleet.table import Row, rows_of

if TYPE_CHECKING:
    from vcc.documents.asker import Asker

FORMAT = 2  # raise it when the columns of a row, or their meaning, change
LIBRARIES = ("vcc-transformers", "torch", "transformers", "tokenizers", "pypdf", "markdown-it-py")


@dataclass(frozen=True)
class Job:
    """A picklable description of the work: ask every document the questions, or keep an index of every document."""

    doing: Literal["ask", "index"]
    model: str | None = None
    questions: tuple[Question, ...] = ()
    top: int = 1
    threshold: float | None = None
    store: str = ""  # the folder of indexes; for "index" only
    limits: Limits = USUAL
    seconds: float = 60.0
    memory: int = 2**31

    def settings(self) -> dict[str, Any]:
        """All that changes results. Time and memory for reading a file are left out: they only decide what fails, and
        whoever retries what failed may give more of them."""
        folder = default_model() if self.model is None else Path(self.model)
        files = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".txt", ".model"))
        return {
            "format": FORMAT,
            "doing": self.doing,
            "model": {path.name: sha256_of(path) for path in files},
            "questions": [asdict(question) for question in self.questions],
            "top": self.top,
            "threshold": self.threshold,
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
    """What became of one document, and what it took, which is no part of the result."""

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
    asker: "Asker" = field(init=False)

    def __post_init__(self) -> None:
        import torch

        # A matrix product may round differently on two threads than on one. With one thread each, processes give the
        # same bits however many there are, and more of them use the machine as well as threads would.
        torch.set_num_threads(1)
        self.asker = load_asker(self.job.model)

    def __call__(self, item: Item) -> list[Row]:
        """The rows of one document; whatever is wrong with it is its row."""
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
            logging.getLogger(__name__).exception("%s", item.name)
            return [failed(item, "internal", f"{type(error).__name__}: {error}", digest)]

    def read(self, data: bytes, name: str) -> Text:
        """In a child. It may have been killed by someone who was short of memory, so a crash is tried once more."""
        job = self.job
        try:
            return read_isolated(data, name, job.limits, job.seconds, job.memory)
        except ReadingError as error:
            if error.kind != "crash":
                raise
            return read_isolated(data, name, job.limits, job.seconds, job.memory)

    def rows(self, item: Item, digest: str, text: Text) -> list[Row]:
        from vcc.documents.archive import ask_archive, is_long, long_index

        job = self.job
        about: Row = {"document": item.name, "id": digest, "title": text.title, "notes": "\n".join(text.notes) or None}
        about |= dict.fromkeys(("kind", "error"))
        if job.doing == "index":
            return [about | self.kept(text)]
        questions = [question.question for question in job.questions]
        if is_long(text):
            index = long_index(text, self.asker, None)
            replies, facts = ask_archive(self.asker, text, index, questions, job.top, threshold=job.threshold)
        else:
            replies, facts = self.asker.ask(text, self.asker.index(text), questions, job.top, threshold=job.threshold)
        found = row_of(text, named(replies, job.questions), item.name)
        return list(rows_of(about | {"tokens": facts.tokens}, job.questions, found))

    def kept(self, text: Text) -> Row:
        """Keep an index: its tokens, and the name of its folder in the store."""
        from vcc.documents.archive import is_long, long_index
        from vcc.documents.store import Store

        store = Store(Path(self.job.store))
        index = long_index(text, self.asker, store) if is_long(text) else store.get(text, self.asker)
        return {"tokens": index.tokens, "place": store.place(text.sha256, self.model_hash).name}

    @cached_property
    def model_hash(self) -> str:
        from vcc.documents.store import model_hash

        return model_hash(self.asker)


def failed(item: Item, kind: str, error: str, digest: str | None = None) -> Row:
    return {"document": item.name, "id": digest, "kind": kind, "error": error}
