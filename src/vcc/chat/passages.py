"""The passages of a document that a language model is given to answer a question."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vcc.documents.answers import Answer
from vcc.documents.document import Document
from vcc.documents.text import Text

FOUND = 8  # spans that passages are put around, at most
AROUND = 150  # characters on each side of a span, up to whole sentences
LETTERS = 10  # of a token, on average: a text with more is longer, without counting


@dataclass(frozen=True)
class Passage:
    """text[start:end] of a document; `part`: where a reader finds it; `score`: how likely its best span answers."""

    start: int
    end: int
    part: str
    score: float
    text: str


@dataclass(frozen=True)
class FoundPassages:
    """The best passages, best first, and the words that answer the question where the reader is sure of them."""

    passages: tuple[Passage, ...]
    hint: str = ""


def find_passages(document: Document, question: str, room: int, length: Callable[[str], int]) -> FoundPassages:
    """The best passages for a question, as many as `room` holds by `length`; at least one, if any is found.

    They are whole sentences around the spans that may answer it. A text that finds room is one passage, whole.
    """
    content = document.content
    replies, _ = document.answer([question], top=FOUND, threshold=0.0)
    answers = replies[0].answers
    sure = document.asker().qa.settings.threshold
    hint = " ".join(answers[0].text.split()) if answers and answers[0].score >= sure else ""
    if len(content.text) <= LETTERS * room and length(content.text) <= room:
        return FoundPassages((passage_at(content, 0, len(content.text), answers[0].score if answers else 0.0),), hint)
    return FoundPassages(fitting(content, merged(content, answers, AROUND), room, length), hint)


def fitting(content: Text, passages: Sequence[Passage], room: int, length: Callable[[str], int]) -> tuple[Passage, ...]:
    """Those that fit, in the order given; the first is cut where it alone is too long."""
    kept: list[Passage] = []
    for passage in passages:
        while not kept and length(passage.text) > room and passage.end - passage.start > 1:
            passage = passage_at(content, passage.start, (passage.start + passage.end) // 2, passage.score)
        size = length(passage.text)
        if size <= room:
            room -= size
            kept.append(passage)
    return tuple(kept)


def merged(content: Text, answers: Sequence[Answer], around: int) -> list[Passage]:
    """The surroundings of each answer; those that meet become one, in the better one's place."""
    found: list[Passage] = []
    for answer in answers:
        start, _ = content.sentence_around(*(max(answer.start - around, 0),) * 2)
        _, end = content.sentence_around(*(min(answer.end + around, len(content.text)),) * 2)
        score = answer.score
        for other in [other for other in found if other.start <= end and start <= other.end]:
            start, end, score = min(start, other.start), max(end, other.end), max(score, other.score)
            found.remove(other)
        found.append(passage_at(content, start, end, score))
        found.sort(key=lambda passage: -passage.score)
    return found


def passage_at(content: Text, start: int, end: int, score: float) -> Passage:
    words = content.text[start:end]
    start, end = start + len(words) - len(words.lstrip()), end - len(words) + len(words.rstrip())
    part = content.part_at(start).label or f"{start / max(len(content.text), 1):.0%} into the text"
    return Passage(start, end, part, score, content.text[start:end])
