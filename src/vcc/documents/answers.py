"""What asking returns: spans of the text with a score, gathered under their question."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from vcc.documents.boxes import Box
from vcc.documents.text import Text, without_overlaps

PAGE = re.compile(r"(?:.* · )?page (\d+)")  # the label of a page, of a document or of a file in a folder


@dataclass(frozen=True)
class Answer:
    """text[start:end] of the document answers `question`; `score`: how likely it is right; `part`: where to find it."""

    text: str
    start: int
    end: int
    score: float
    part: str
    question: str
    boxes: tuple[Box, ...] = ()  # where its words stand on the pages of a PDF, a box a line

    @property
    def page(self) -> int | None:
        """The page it begins on, where the document has pages."""
        found = PAGE.fullmatch(self.part)
        return int(found.group(1)) if found else None


@dataclass(frozen=True)
class Reply:
    """All that was found for one question, best first; no answers means that the model found none."""

    question: str
    answers: tuple[Answer, ...]
    name: str = ""  # a short name to show instead of the question, e.g. that of a clause
    group: str = ""  # the heading it is listed under in a report
    nearest: Answer | None = None  # where there is no answer, what the model would say if it had to be less sure

    @property
    def heading(self) -> str:
        return self.name or self.question


def answer_at(text: Text, question: str, start: int, end: int, score: float) -> Answer:
    """The answer at a span, without the blanks at its ends."""
    if not 0 <= start < end <= len(text.text):
        raise ValueError(f"span {start}..{end} must be non-empty and lie in 0..{len(text.text)}")
    words = text.text[start:end]
    start, end = start + len(words) - len(words.lstrip()), end - len(words) + len(words.rstrip())
    boxes = text.boxes(start, end)
    return Answer(text.text[start:end], start, end, score, text.part_at(start).label, question, boxes)


def place_of(text: Text, answer: Answer) -> str:
    """Where a reader finds the answer; in a text without parts, how far into it."""
    return answer.part or f"{answer.start / len(text.text):.0%} into the text"


def merge_overlaps(answers: Iterable[Answer], top: int | None = None) -> tuple[Answer, ...]:
    """Best first; an answer that overlaps a better one is taken as the same answer and goes into it.

    The better span is not widened: chains of overlaps would grow it far beyond what the model pointed at.
    """
    best_first = sorted(answers, key=lambda answer: (-answer.score, answer.start, answer.end))
    return tuple(islice(without_overlaps(best_first, lambda answer: (answer.start, answer.end)), top))


def as_dict(text: Text, replies: Iterable[Reply]) -> dict[str, Any]:
    """Replies as plain values, for `--json`."""
    return {
        "document": {
            "title": text.title,
            "source": text.source,
            "sha256": text.sha256,
            "characters": len(text.text),
            "notes": list(text.notes),
        },
        "replies": [
            {
                "question": reply.question,
                **({"name": reply.name} if reply.name else {}),
                "found": bool(reply.answers),
                "answers": [_answer_dict(text, answer) for answer in reply.answers],
                **({"nearest": _answer_dict(text, reply.nearest)} if reply.nearest else {}),
            }
            for reply in replies
        ],
    }


def _answer_dict(text: Text, answer: Answer) -> dict[str, Any]:
    first, last = text.sentence_around(answer.start, answer.end)
    return {
        "text": answer.text,
        "start": answer.start,
        "end": answer.end,
        "score": round(float(answer.score), 4),
        "part": answer.part,
        **({"page": answer.page} if answer.page else {}),
        "sentence": " ".join(text.text[first:last].split()),
        **({"boxes": [box._asdict() for box in answer.boxes]} if answer.boxes else {}),
    }


def excerpt(text: Text, answer: Answer, margin: int = 160, longest: int = 600) -> tuple[str, str, str]:
    """The sentence around an answer as (before, answer, after) on one line, shortened with "…" where it is long."""
    first, last = text.sentence_around(answer.start, answer.end)
    before, inside, after = (
        " ".join(text.text[a:b].split())
        for a, b in ((first, answer.start), (answer.start, answer.end), (answer.end, last))
    )
    if len(before) > margin:
        before = "… " + before[-margin:].partition(" ")[2]
    if len(inside) > longest:
        inside = inside[: longest * 2 // 3].rpartition(" ")[0] + " … " + inside[-longest // 3 :].partition(" ")[2]
    if len(after) > margin:
        after = after[:margin].rpartition(" ")[0] + " …"
    # The blanks next to the answer went with the line breaks: put back those that stood there.
    gap_before = " " if text.text[first : answer.start][-1:].isspace() else ""
    gap_after = " " if text.text[answer.end : last][:1].isspace() else ""
    return before + gap_before, inside, gap_after + after
