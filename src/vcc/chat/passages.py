"""The passages of a document that may answer a question."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vcc.documents.answer import Answer
from vcc.documents.document import Document
from vcc.documents.text import Text

FOUND = 8  # spans that passages are put around, at most
AROUND = 150  # characters on each side of a span, up to whole sentences
NEAR = 0.3  # of the best answer's score
LETTERS = 10  # of a token, on average: a text with more is longer, without counting


@dataclass(frozen=True)
class GivenPassage:
    """text[start:end] of a document; `part`: where a reader finds it; `best`: the likeliest answer in it, if any."""

    start: int
    end: int
    part: str
    text: str
    best: Answer | None

    @property
    def score(self) -> float:
        return self.best.score if self.best else 0.0


@dataclass(frozen=True)
class FoundPassages:
    """The best passages, best first, and the words that answer the question where the reader is sure of them."""

    passages: tuple[GivenPassage, ...]
    hint: str = ""
    whole: bool = False  # whether the only passage is all of the text


def find_passages(document: Document, question: str, room: int, length: Callable[[str], int]) -> FoundPassages:
    """Return the best passages for a question, as many as fit into `room` by `length`; at least one if any is found.

    They are whole sentences around the spans that may answer it. A text that fits is one passage.
    """
    content = document.content
    answers, sure = find_answers(document, question)
    hint = " ".join(answers[0].text.split()) if answers and answers[0].score >= sure else ""
    if len(content.text) <= LETTERS * room and length(content.text) <= room:
        return FoundPassages((passage_at(content, 0, len(content.text), answers[0] if answers else None),), hint, True)
    # Beside a sure answer, what is far less likely only distracts a small model.
    near = [one for one in answers if not hint or one.score >= NEAR * answers[0].score]
    return FoundPassages(fitting(content, merged(content, near, AROUND), room, length), hint)


def find_answers(document: Document, question: str) -> tuple[tuple[Answer, ...], float]:
    """The likeliest answers, best first, and the score from which the reader is sure of one."""
    replies, _ = document.answer([question], top=FOUND, threshold=0.0)
    return replies[0].answers, document.asker().qa.settings.threshold


def fitting(
    content: Text, passages: Sequence[GivenPassage], room: int, length: Callable[[str], int]
) -> tuple[GivenPassage, ...]:
    """Those that fit, in the order given; the first is cut where it alone is too long."""
    kept: list[GivenPassage] = []
    for passage in passages:
        while not kept and length(passage.text) > room and passage.end - passage.start > 1:
            passage = halved(content, passage)
        size = length(passage.text)
        if size <= room:
            room -= size
            kept.append(passage)
    return tuple(kept)


def halved(content: Text, passage: GivenPassage) -> GivenPassage:
    """About half of a passage: what is around its best answer, or what comes first."""
    size = (passage.end - passage.start) // 2
    middle = (passage.best.start + passage.best.end) // 2 if passage.best else passage.start
    start = max(passage.start, min(middle - size // 2, passage.end - size))
    return passage_at(content, start, start + size, passage.best)


def merged(content: Text, answers: Sequence[Answer], around: int) -> list[GivenPassage]:
    """The surroundings of each answer; those that meet become one, in the better one's place."""
    found: list[GivenPassage] = []
    for answer in answers:
        start, _ = content.sentence_around(*(max(answer.start - around, 0),) * 2)
        _, end = content.sentence_around(*(min(answer.end + around, len(content.text)),) * 2)
        best = answer
        for other in [other for other in found if other.start <= end and start <= other.end]:
            start, end = min(start, other.start), max(end, other.end)
            best = other.best if other.best and other.best.score > best.score else best
            found.remove(other)
        found.append(passage_at(content, start, end, best))
        found.sort(key=lambda passage: -passage.score)
    return found


def passage_at(content: Text, start: int, end: int, best: Answer | None) -> GivenPassage:
    words = content.text[start:end]
    start, end = start + len(words) - len(words.lstrip()), end - len(words) + len(words.rstrip())
    part = content.part_at(start).label or f"{start / max(len(content.text), 1):.0%} into the text"
    return GivenPassage(start, end, part, content.text[start:end], best)
