"""Ask one document a whole list of questions, for `vcc review` and the service.

A contract has several parties, caps and licences, and one title: a review shows every sure answer to the clauses that
come several times, and the best one to any other question.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vcc.documents.answer import Reply
from vcc.documents.document import Document
from vcc.documents.extract.names import parties_in
from vcc.documents.facts import Facts
from vcc.documents.review_table import Question, named
from vcc.documents.text import Text
from vcc.qa.clauses import CLAUSES

if TYPE_CHECKING:
    from vcc.documents.asker import Progress

MOST = 8  # answers to a question
# Clauses that a contract has once; at least one contract in five has several of any other.
ONCE = frozenset(
    (
        *("Document Name", "Agreement Date", "Effective Date", "Governing Law", "Expiration Date", "Renewal Term"),
        *("Notice Period To Terminate Renewal", "Termination For Convenience", "Third Party Beneficiary"),
        *("No-Solicit Of Customers", "Most Favored Nation"),
    )
)
SEVERAL = frozenset(clause.question for clause in CLAUSES if clause.category not in ONCE)
PARTIES = next(clause.question for clause in CLAUSES if clause.category == "Parties")


def ask_list(
    document: Document,
    questions: Sequence[Question],
    top: int | None = None,
    progress: "Progress" = lambda done, total: None,
    threshold: float | None = None,
    thorough: bool = False,
) -> tuple[list[Reply], Facts]:
    """The replies, under the names of their questions. `top`: answers to each, by default as many as there are."""
    asked = [question.question for question in questions]
    found, facts = document.answer(asked, most_answers(asked, top), threshold, progress=progress, thorough=thorough)
    return named([reviewed(document.content, reply, top) for reply in found], questions), facts


def most_answers(questions: Sequence[str], top: int | None) -> int:
    """How many answers to ask for in a batch."""
    return top or (MOST if any(question in SEVERAL for question in questions) else 1)


def reviewed(text: Text, reply: Reply, top: int | None) -> Reply:
    """A reply as a review shows it: two parties in one span are two answers, and a defined term is none."""
    if top is not None:
        return replace(reply, answers=reply.answers[:top])
    if reply.question == PARTIES:
        return replace(reply, answers=tuple(parties_in(text, reply.answers)) or reply.answers[:1])
    return replace(reply, answers=reply.answers[: MOST if reply.question in SEVERAL else 1])
