"""The Python interface to a document: its text, the model that answers, and the index."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vcc.documents.answer import Answer, Reply
from vcc.documents.formats.gate import DEFAULT_LIMITS, Limits
from vcc.documents.isolated import DEFAULT_SECONDS, read_file_isolated
from vcc.documents.shipped import load_asker
from vcc.documents.text import Part, Text

if TYPE_CHECKING:  # importing torch and transformers takes seconds
    from vcc.documents.asker import Asker
    from vcc.documents.extract.fill import Form
    from vcc.documents.facts import Facts
    from vcc.documents.index import Index
    from vcc.documents.layer_view import LayerView
    from vcc.documents.store import Store
    from vcc.documents.verify import Verdict
    from vcc.qa.model import Progress

Got = TypeVar("Got")


def no_progress(done: int, total: int) -> None:
    pass


class Document:
    """A text that can be asked. Each model reads it once, at its first question.

    `model` is the folder of the default model; None is the bundled model. `store` keeps indexes on disk; without it
    they live as long as the document.
    """

    def __init__(self, content: Text, model: str | None = None, store: "Store | None" = None) -> None:
        self.content, self.model, self.store = content, model, store
        self.indexes: dict[str | None, Index] = {}  # by the model's folder

    def __repr__(self) -> str:
        return f"Document({self.title!r}, {len(self.text):,} characters, from {self.source!r})"

    # Properties of the text.

    @property
    def text(self) -> str:
        return self.content.text

    @property
    def title(self) -> str:
        return self.content.title

    @property
    def source(self) -> str:
        return self.content.source

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.content.parts

    @property
    def notes(self) -> tuple[str, ...]:
        return self.content.notes

    @property
    def sha256(self) -> str:
        return self.content.sha256

    def part_at(self, offset: int) -> Part:
        return self.content.part_at(offset)

    def sentence_around(self, start: int, end: int) -> tuple[int, int]:
        return self.content.sentence_around(start, end)

    # Asking.

    def ask(
        self, question: str, top: int = 3, threshold: float | None = None, model: str | None = None
    ) -> tuple[Answer, ...]:
        """Return the best answers to one question, each with the probability that it is right; it may be empty.

        `threshold` is the lowest score of an answer, by default the model's own setting. With 0, the best spans are
        returned, however unlikely.
        """
        return self.ask_all([question], top, threshold, model)[0].answers

    def ask_all(
        self,
        questions: Sequence[str],
        top: int = 3,
        threshold: float | None = None,
        model: str | None = None,
        thorough: bool = False,
    ) -> tuple[Reply, ...]:
        """Answer several questions in a batch. If a reply has no answers, `nearest` may be a doubtful one.

        `thorough` reads every part of the text closely with every question, as `vcc review --thorough` does.
        """
        return self.answer(questions, top, threshold, model, thorough=thorough)[0]

    def answer(
        self,
        questions: Sequence[str],
        top: int = 3,
        threshold: float | None = None,
        model: str | None = None,
        progress: "Progress" = no_progress,
        thorough: bool = False,
    ) -> "tuple[tuple[Reply, ...], Facts]":
        """Like `ask_all`, with statistics of reading and asking."""
        asker = self.asker(model)
        if thorough:
            from vcc.documents.index import check_can_be_read_thoroughly

            check_can_be_read_thoroughly(self.content)
        return self.with_index(
            model, lambda index: asker.replies_to(self.content, index, questions, top, threshold, progress, thorough)
        )

    def see(self, question: str, top: int = 3, model: str | None = None) -> "tuple[LayerView, Facts]":
        """Return what each compressed layer read closely for a question."""
        from vcc.documents.index import check_can_be_shown

        check_can_be_shown(self.content)
        asker = self.asker(model)
        return self.with_index(model, lambda index: asker.see(self.content, index, question, top))

    def extract(self, schema: Any, threshold: float | None = None, model: str | None = None) -> "Form":
        """Fill a form: `schema` is a JSON Schema, its file, or a Pydantic class. Each value comes with its evidence."""
        from vcc.documents.extract.fill import fill
        from vcc.documents.extract.schema import form_schema

        return fill(self, form_schema(schema), threshold, model)

    def verify(self, text: str, model: str | None = None) -> "tuple[Verdict, ...]":
        """Return for each sentence of a text whether the document supports it, contradicts it or is silent."""
        from vcc.documents.verify import verify_document

        return verify_document(self, text, model)

    def asker(self, model: str | None = None) -> "Asker":
        return load_asker(self.model if model is None else model)

    def read(self, model: str | None = None, progress: "Progress" = no_progress) -> None:
        """Read the text with a model now, not at the first question."""
        self.index(model, progress)

    def index(self, model: str | None = None, progress: "Progress" = no_progress) -> "Index":
        """The index of the text for a model; it is made if it is missing or was removed."""
        from vcc.documents.store import Store

        folder, store = self.model if model is None else model, self.store or Store(None)
        known = self.indexes.get(folder)
        if known is None:
            self.indexes[folder] = store.get(self.content, load_asker(folder), progress)
        elif not store.holds(known):
            self.indexes[folder] = store.renewed(known, self.content, load_asker(folder), progress)
        return self.indexes[folder]

    def with_index(self, model: str | None, work: "Callable[[Index], Got]") -> Got:
        """Do the work, and retry once if another process removed the index meanwhile."""
        from vcc.documents.index import RemovedIndexError

        try:
            return work(self.index(model))
        except RemovedIndexError:
            del self.indexes[self.model if model is None else model]
            return work(self.index(model))


def read_document(path: str | Path, limits: Limits = DEFAULT_LIMITS, seconds: float = DEFAULT_SECONDS) -> Document:
    """Read a file, a folder or standard input ("-") into a document.

    Each file is read in a separate process and may take `seconds`.
    """
    return Document(read_file_isolated(path, limits, seconds))
