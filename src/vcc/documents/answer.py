"""One answer and one reply: the values that asking returns, and their plain form for JSON, HTTP and tables."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any

from vcc.documents.boxes import Box
from vcc.documents.show.inline import answer_html, answers_html
from vcc.documents.text import Text, without_overlaps

PAGE = re.compile(r"(?:.* · )?page (\d+)")  # the label of a page, in a document or in a file of a folder


@dataclass(frozen=True)
class Answer:
    """text[start:end] of a document, found as the answer to a question.

    These names are the same everywhere: in Python, JSON, HTTP, Parquet, spreadsheets and pages.
    """

    text: str  # the characters start..end - 1 of the document, unchanged
    start: int
    end: int
    score: float  # the probability that it is right
    place: str  # for people: "page 3", "12. GOVERNING LAW", "41% into the text"
    page: int | None  # the page it begins on; None if the document has no pages
    sentence: str  # the sentence around it, on one line
    sure: bool = True  # False: below the threshold; a person should check it
    boxes: tuple[Box, ...] = ()  # its words on the pages of a PDF, one box per line

    def as_dict(self) -> dict[str, Any]:
        """Plain values under the same names; every serialised answer is made from this."""
        return {**vars(self), "boxes": [box._asdict() for box in self.boxes]}

    def _repr_html_(self) -> str:
        return answer_html(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Answer":
        """The answer that `as_dict` was called on; other keys, such as the columns of a table, are ignored."""
        plain = {name: values[name] for name in ANSWER_FIELDS}
        return cls(**{**plain, "boxes": tuple(Box(**box) for box in values["boxes"])})


ANSWER_FIELDS = tuple(field.name for field in fields(Answer))


@dataclass(frozen=True)
class Reply:
    """The answers to one question, best first; empty if the model found none."""

    question: str
    answers: tuple[Answer, ...]
    name: str = ""  # a short name to show instead of the question, e.g. that of a clause
    group: str = ""  # the heading it is listed under in a report
    nearest: Answer | None = None  # the best answer below the threshold, if no answer is above it

    @property
    def heading(self) -> str:
        return self.name or self.question

    @property
    def all_answers(self) -> tuple[Answer, ...]:
        """The answers, or else the doubtful one."""
        return self.answers or (() if self.nearest is None else (self.nearest,))

    def _repr_html_(self) -> str:
        return answers_html(self.heading, self.all_answers)

    def as_dict(self) -> dict[str, Any]:
        """Plain values. A doubtful answer is one of `answers`, with sure=False."""
        answers = [answer.as_dict() for answer in self.all_answers]
        return {"question": self.question, "name": self.name, "group": self.group, "answers": answers}


def answer_at(text: Text, start: int, end: int, score: float, sure: bool = True) -> Answer:
    """The answer at a span, without the blanks at its ends."""
    if not 0 <= start < end <= len(text.text):
        raise ValueError(f"span {start}..{end} must be non-empty and lie in 0..{len(text.text)}")
    words = text.text[start:end]
    start += len(words) - len(words.lstrip())
    end = start + len(words.strip())
    page = PAGE.fullmatch(text.part_at(start).label)
    first, last = text.sentence_around(start, end)
    return Answer(
        text=text.text[start:end],
        start=start,
        end=end,
        score=float(score),
        place=place_at(text, start),
        page=int(page.group(1)) if page else None,
        sentence=on_one_line(text.text[first:last]),
        sure=sure,
        boxes=text.boxes(start, end),
    )


def place_at(text: Text, offset: int) -> str:
    """Where a reader finds a character: the part it lies in, or how far into the text it is."""
    return text.part_at(offset).label or f"{offset / len(text.text):.0%} into the text"


def on_one_line(words: str) -> str:
    return " ".join(words.split())


def merge_overlaps(answers: Iterable[Answer], top: int | None = None) -> tuple[Answer, ...]:
    """Best first, without those that overlap a better one: they are taken as the same answer.

    The better span is not widened: chains of overlaps would grow it far beyond what the model pointed at.
    """
    best_first = sorted(answers, key=lambda answer: (-answer.score, answer.start, answer.end))
    return tuple(islice(without_overlaps(best_first, lambda answer: (answer.start, answer.end)), top))


def as_dict(text: Text, replies: Iterable[Reply]) -> dict[str, Any]:
    """A document and its replies as plain values, for `--json`."""
    return {
        "document": {
            "title": text.title,
            "source": text.source,
            "sha256": text.sha256,
            "characters": len(text.text),
            "notes": list(text.notes),
        },
        "replies": [reply.as_dict() for reply in replies],
    }


def excerpt(text: Text, answer: Answer, margin: int = 160, longest: int = 600) -> tuple[str, str, str]:
    """The sentence around an answer as (before, answer, after) on one line, shortened with "…" where it is long."""
    first, last = text.sentence_around(answer.start, answer.end)
    before, inside, after = (
        on_one_line(text.text[a:b]) for a, b in ((first, answer.start), (answer.start, answer.end), (answer.end, last))
    )
    if len(before) > margin:
        before = "… " + before[-margin:].partition(" ")[2]
    if len(inside) > longest:
        inside = inside[: longest * 2 // 3].rpartition(" ")[0] + " … " + inside[-longest // 3 :].partition(" ")[2]
    if len(after) > margin:
        after = after[:margin].rpartition(" ")[0] + " …"
    # Splitting removed the blanks next to the answer: put back those that were there.
    gap_before = " " if text.text[first : answer.start][-1:].isspace() else ""
    gap_after = " " if text.text[answer.end : last][:1].isspace() else ""
    return before + gap_before, inside, gap_after + after
