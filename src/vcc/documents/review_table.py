"""Many documents, the same questions: one row per document, one cell per question."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from vcc.documents.answer import Answer, Reply
from vcc.documents.text import Text


@dataclass(frozen=True)
class Question:
    """A question to every document; `name` heads its column, `group` its section."""

    question: str
    name: str = ""
    group: str = ""

    @property
    def heading(self) -> str:
        return self.name or self.question


@dataclass(frozen=True)
class ReviewRow:
    """The answers of one document, a cell per question, best first; or the error from reading it.

    A cell is empty if no answer was found, and holds one doubtful answer if none was sure.
    """

    document: str  # its name in the table
    cells: tuple[tuple[Answer, ...], ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        cells = [[answer.as_dict() for answer in cell] for cell in self.cells]
        return {"document": self.document, "cells": cells, "notes": list(self.notes), "error": self.error}


@dataclass(frozen=True)
class ReviewTable:
    """Questions and documents. A row has a cell for each question, or an error and no cells."""

    questions: tuple[Question, ...]
    rows: tuple[ReviewRow, ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            width = 0 if row.error else len(self.questions)
            if len(row.cells) != width:
                raise ValueError(f"the row of {row.document} has {len(row.cells)} cells, not {width}")

    def as_dict(self) -> dict[str, Any]:
        return {
            "questions": [asdict(question) for question in self.questions],
            "rows": [row.as_dict() for row in self.rows],
        }


def row_of(text: Text, replies: Iterable[Reply], document: str = "") -> ReviewRow:
    """The row of a document from its replies; `document` is its name, by default its title."""
    return ReviewRow(document or text.title, tuple(reply.all_answers for reply in replies), text.notes)


def named(replies: Sequence[Reply], questions: Sequence[Question]) -> list[Reply]:
    """Replies with the names and groups of their questions."""
    return [
        replace(reply, name=question.name, group=question.group)
        for reply, question in zip(replies, questions, strict=True)
    ]
