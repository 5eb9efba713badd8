"""Ask one document a whole list of questions, for `vcc review` and the service."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vcc.documents.answer import Reply
from vcc.documents.document import Document
from vcc.documents.facts import Facts
from vcc.documents.review_table import Question, named

if TYPE_CHECKING:
    from vcc.documents.asker import Progress


def ask_list(
    document: Document, questions: Sequence[Question], top: int, progress: "Progress" = lambda done, total: None
) -> tuple[list[Reply], Facts]:
    """The replies, under the names of their questions."""
    found, facts = document.answer([question.question for question in questions], top, progress=progress)
    return named(found, questions), facts
