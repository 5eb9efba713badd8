"""`Said`: what is answered to a question; and the answer that is quoted, for which no model writes."""

from dataclasses import dataclass
from itertools import islice

from vcc.chat.passages import GivenPassage, find_answers, passage_at
from vcc.documents.answer import Answer, on_one_line
from vcc.documents.document import Document
from vcc.documents.verify import Verdict

QUOTED = 3  # sentences, at most


@dataclass(frozen=True)
class Said:
    """An answer and the passages it rests on; `text` is empty if no passage supports an answer."""

    question: str
    text: str
    passages: tuple[GivenPassage, ...]
    quoted: bool  # whether the text is sentences of the document, unchanged but for blanks
    unsupported: tuple[str, ...] = ()  # sentences the model wrote that the document contradicts or does not support
    verdicts: tuple[Verdict, ...] = ()  # on each sentence of a text that a model wrote


def quote(document: Document, question: str) -> Said:
    """Answer with the sentences in which the reader is sure of an answer, best first; its passages are these.

    Without any, the passage is the sentence that comes nearest.
    """
    answers, sure = find_answers(document, question)
    certain = [answer for answer in answers if answer.score >= sure]
    content = document.content
    found: dict[tuple[int, int], Answer] = {}
    for answer in certain or answers[:1]:
        found.setdefault(content.sentence_around(answer.start, answer.end), answer)
    passages = tuple(passage_at(content, *span, best) for span, best in islice(found.items(), QUOTED))
    text = " ".join(on_one_line(passage.text) for passage in passages) if certain else ""
    return Said(question, text, passages, quoted=True)
