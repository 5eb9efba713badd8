"""A document as Python code sees it: a text, the model that answers, and how that model has read the text."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vcc.documents.answer import Answer, Reply
from vcc.documents.formats.gate import USUAL, Limits
from vcc.documents.formats.read import read_text
from vcc.documents.shipped import load_asker
from vcc.documents.text import Text
from vcc.errors import UsageError

if TYPE_CHECKING:  # they import torch and transformers, which take seconds
    from vcc.documents.archive import LongIndex
    from vcc.documents.asker import Asker, Facts, Index, Progress
    from vcc.documents.layer_view import LayerView
    from vcc.documents.store import Store


class Document:
    """A text that can be asked. Each model reads it once, at the first question to it.

    `model` is the folder of the model that answers where a question names no other; None is the one that comes with the
    package. `store` keeps indexes on disk; without one they live as long as the document.
    """

    def __init__(self, content: Text, model: str | None = None, store: "Store | None" = None) -> None:
        self.content, self.model, self.store = content, model, store
        self.indexes: dict[str | None, Index] = {}  # by the model's folder
        self.long_indexes: dict[str | None, LongIndex] = {}
        # What the text knows of itself, for those who hold a document only.
        self.text, self.title, self.source = content.text, content.title, content.source
        self.parts, self.notes = content.parts, content.notes
        self.part_at, self.sentence_around = content.part_at, content.sentence_around

    def __repr__(self) -> str:
        return f"Document({self.title!r}, {len(self.text):,} characters, from {self.source!r})"

    @property
    def sha256(self) -> str:
        return self.content.sha256

    def ask(
        self, question: str, top: int = 3, threshold: float | None = None, model: str | None = None
    ) -> tuple[Answer, ...]:
        """The best answers to one question, each with the probability that it is right; none if the model finds none.

        `threshold`: how likely an answer must be right; unless given, as the model says. With 0, the best spans,
        whatever the model thinks of them.
        """
        return self.ask_all([question], top, threshold, model)[0].answers

    def ask_all(
        self, questions: Sequence[str], top: int = 3, threshold: float | None = None, model: str | None = None
    ) -> tuple[Reply, ...]:
        """Several questions at once, as in `ask`; a reply may hold a doubtful answer as its `nearest`."""
        return self.answer(questions, top, model, threshold)[0]

    def answer(
        self,
        questions: Sequence[str],
        top: int = 3,
        model: str | None = None,
        threshold: float | None = None,
        progress: "Progress" = lambda done, total: None,
    ) -> "tuple[tuple[Reply, ...], Facts]":
        """As `ask_all`, with the facts of how the document was read and asked."""
        if self.is_long:
            from vcc.documents.archive import ask_archive

            return ask_archive(
                self.asker(model), self.content, self.long_index(model), questions, top, progress, threshold
            )
        return self.asker(model).ask(self.content, self.index(model), questions, top, progress, threshold)

    def see(self, question: str, top: int = 3, model: str | None = None) -> "tuple[LayerView, Facts]":
        """What each compressed layer read closely for a question."""
        if self.is_long:
            raise UsageError(f"{self.source}: {len(self.text):,} characters are too many to show; see a part of it")
        return self.asker(model).see(self.content, self.index(model), question, top)

    def asker(self, model: str | None = None) -> "Asker":
        return load_asker(self.model if model is None else model)

    @property
    def is_long(self) -> bool:
        """Whether it is too long to be held in memory as the model reads it."""
        from vcc.documents.archive import is_long

        return is_long(self.content)

    def long_index(self, model: str | None = None, progress: "Progress" = lambda done, total: None) -> "LongIndex":
        """As `index`, on disk: for a text that is too long for memory."""
        from vcc.documents.archive import long_index

        folder = self.model if model is None else model
        if folder not in self.long_indexes:
            self.long_indexes[folder] = long_index(self.content, load_asker(folder), self.store, progress)
        return self.long_indexes[folder]

    def read(self, model: str | None = None, progress: "Progress" = lambda done, total: None) -> None:
        """Let a model read it, now rather than at the first question."""
        self.long_index(model, progress) if self.is_long else self.index(model, progress)

    def index(self, model: str | None = None, progress: "Progress" = lambda done, total: None) -> "Index":
        """The text as a model has read it: now, if it has not yet."""
        folder = self.model if model is None else model
        if folder not in self.indexes:
            asker = load_asker(folder)
            if self.store is None:
                self.indexes[folder] = asker.index(self.content, progress)
            else:
                self.indexes[folder] = self.store.get(self.content, asker, progress)
        return self.indexes[folder]


def read_document(path: str | Path, limits: Limits = USUAL) -> Document:
    """A file, a folder or "-" for standard input, as a document that can be asked."""
    return Document(read_text(path, limits))
