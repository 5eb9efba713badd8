"""A filled form as a review table: one row, a column per field. Spreadsheets are written from it."""

from dataclasses import replace
from typing import Any

from vcc.documents.answer import Answer
from vcc.documents.extract.fill import Filled, Form, shown_value
from vcc.documents.extract.wordings import questions_of
from vcc.documents.review_table import Question, ReviewRow, ReviewTable


def form_table(form: Form, document: str) -> ReviewTable:
    """The table of one form; a cell holds the values of a field, or else the doubtful evidence."""
    leaves = form.schema.leaves
    cells: list[list[Answer]] = [[] for _ in leaves]
    for filled in form.fields:
        if (answer := shown_answer(filled)) is not None:
            cells[filled.number].append(answer)
    questions = tuple(Question(questions_of(leaf)[0], leaf.path) for leaf in leaves)
    return ReviewTable(questions, (ReviewRow(document, tuple(map(tuple, cells))),))


def shown_answer(filled: Filled) -> Answer | None:
    """The evidence of a field, with its value in place of the words it was read from."""
    if filled.value is None:
        return filled.answer
    return value_answer(filled.value, filled.answer)


def value_answer(value: Any, evidence: Answer | None) -> Answer:
    """A value as an answer. "false" for a clause that is not there has no evidence."""
    if evidence is None:
        return Answer(shown_value(value), 0, 0, 1.0, "", None, "")
    return replace(evidence, text=shown_value(value))
