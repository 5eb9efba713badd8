"""Many documents, the same questions: one row a document, one cell a question. A value that needs no text beside it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from vcc.documents.answers import Answer, Reply, excerpt, place_of
from vcc.documents.text import Text


@dataclass(frozen=True)
class Question:
    """What is asked of every document; `name` heads its column, `group` gathers columns that belong together."""

    question: str
    name: str = ""
    group: str = ""

    @property
    def heading(self) -> str:
        return self.name or self.question


@dataclass(frozen=True)
class Finding:
    """One answer as a table shows it: its words, the sentence they stand in, and where that is."""

    text: str
    quote: str
    place: str  # for people: "page 3", "12. GOVERNING LAW", "41% into the text"
    page: int | None
    start: int
    end: int
    score: float
    sure: bool = True  # False: the model would rather say that there is no answer; a person should look


@dataclass(frozen=True)
class ReviewRow:
    """What was found in one document: a cell a question, best answer first; or why it could not be read."""

    document: str  # the name that the reader of the table knows it by
    cells: tuple[tuple[Finding, ...], ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class ReviewTable:
    """Questions and documents; a row is as wide as the list of questions, or holds an error and no cells."""

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
            "rows": [r.as_dict() for r in self.rows],
        }


def row_of(text: Text, replies: Iterable[Reply], document: str = "") -> ReviewRow:
    """The row of a document that was asked; unless named, it is known by its title."""
    cells = tuple(cell_of(text, reply) for reply in replies)
    return ReviewRow(document or text.title, cells, text.notes)


def cell_of(text: Text, reply: Reply) -> tuple[Finding, ...]:
    """The answers; where there is none that the model is sure of, the nearest, marked as doubtful."""
    if not reply.answers and reply.nearest is not None:
        return (finding_of(text, reply.nearest, sure=False),)
    return tuple(finding_of(text, answer) for answer in reply.answers)


def finding_of(text: Text, answer: Answer, sure: bool = True) -> Finding:
    quote = "".join(excerpt(text, answer, margin=300, longest=2000))
    return Finding(
        " ".join(answer.text.split()),
        quote.strip(),
        place_of(text, answer),
        answer.page,
        answer.start,
        answer.end,
        float(answer.score),
        sure,
    )


def named(replies: Sequence[Reply], questions: Sequence[Question]) -> list[Reply]:
    """Replies under the names and groups of their questions."""
    return [
        replace(reply, name=question.name, group=question.group)
        for reply, question in zip(replies, questions, strict=True)
    ]
