"""Check sentences against a document: each is supported, contradicted or not found, with the passage that decides.

Exact and near quotes need no model. What they leave open is judged by the model's verdict head, if it has one.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcc.documents.answer import Answer, answer_at, on_one_line
from vcc.documents.askable import Askable
from vcc.documents.quotes import find_quote
from vcc.documents.shipped import default_model, load_asker
from vcc.documents.text import sentence_ends, without_overlaps
from vcc.errors import UsageError

if TYPE_CHECKING:
    from vcc.qa.verdicts import WindowVerdict

SUPPORTED, CONTRADICTED, NOT_FOUND = "supported", "contradicted", "not found"
MOST_SENTENCES, LONGEST_TEXT = 200, 20_000
NO_HEAD = "the model has no verdict head: only exact and near quotes are checked"
NUMBER = re.compile(r"(?<!\w)\d+")
REACH = 1000  # characters beside a passage in which its clause begins and ends
ITEM = re.compile(r"(?<=\s)(?=\(?(?:[a-z]|[ivx]{1,4}|\d{1,2})\)\s)")  # before "(a) ", "iv) "
LINE = re.compile(r"(?<=[.;:,])\s*\n\s*|\n\s*\n\s*")  # a line that ends with a sentence or an item, not a wrapped one


@dataclass(frozen=True)
class Verdict:
    """What a document says about one sentence."""

    sentence: str
    verdict: str  # supported, contradicted or not found
    passage: Answer | None = None  # what decides it; its score is the probability of the verdict
    by: str = ""  # "exact quote", "near quote" or "model"
    reason: str = ""  # for people: what the document says instead
    judged: bool = False  # whether a verdict head was asked
    also: tuple[Answer, ...] = ()  # further passages about it

    def as_dict(self) -> dict[str, Any]:
        plain = {"sentence": self.sentence, "verdict": self.verdict, "by": self.by, "reason": self.reason}
        passage = None if self.passage is None else self.passage.as_dict()
        return {**plain, "passage": passage, "also": [one.as_dict() for one in self.also]}


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, each on one line."""
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"the text to verify has {len(text):,} characters: at most {LONGEST_TEXT:,} are checked")
    edges = [0, *(start for _, start in sentence_ends(text)), len(text)]
    found = [on_one_line(text[a:b]) for a, b in zip(edges, edges[1:], strict=False)]
    kept = [sentence for sentence in found if any(letter.isalnum() for letter in sentence)]
    if not kept:
        raise UsageError(f"{text[:50]!r} holds no sentence to verify")
    if len(kept) > MOST_SENTENCES:
        raise UsageError(f"the text to verify has {len(kept)} sentences: at most {MOST_SENTENCES} are checked")
    return kept


def verify_document(document: Askable, text: str, model: str | None = None) -> tuple[Verdict, ...]:
    """Return a verdict for each sentence of a text."""
    return tuple(verdict_on(document, sentence, model) for sentence in sentences_of(text))


def verdict_on(document: Askable, sentence: str, model: str | None = None) -> Verdict:
    """The verdict on one sentence: by a quote, or else by the model."""
    content = document.content
    quote = find_quote(content.text, sentence)
    if quote is not None and quote.exact:
        return Verdict(sentence, SUPPORTED, answer_at(content, quote.start, quote.end, 1.0), "exact quote")
    if quote is not None and (quote.faithful or quote.changed is not None):
        passage = answer_at(content, quote.start, quote.end, quote.share)
        if quote.changed is None:
            return Verdict(sentence, SUPPORTED, passage, "near quote")
        ours, theirs = quote.changed
        reason = f'the document says "{theirs}", not "{ours}"' if theirs and ours else f'"{ours or theirs}" differs'
        return Verdict(sentence, CONTRADICTED, passage, "near quote", reason)
    return by_model(document, sentence, model)


def has_head(document: Askable, model: str | None = None) -> bool:
    """Whether the model judges statements."""
    return verdict_head(document.model if model is None else model) is not None


@lru_cache(maxsize=2)
def verdict_head(folder: str | None) -> Any:
    """The verdict head of a model; None if it has none."""
    from vcc.qa.verdicts import FILE, load_head

    path = default_model() if folder is None else Path(folder)
    return load_head(path, load_asker(folder).model) if (path / FILE).is_file() else None


def by_model(document: Askable, sentence: str, model: str | None) -> Verdict:
    head = verdict_head(document.model if model is None else model)
    if head is None:
        return Verdict(sentence, NOT_FOUND, reason=NO_HEAD)
    judged, offsets = judged_windows(document, head, sentence, model)
    if judged is None:
        return Verdict(sentence, NOT_FOUND, reason="the sentence is too long for a window", judged=True)
    support, against, silent = judged.chances
    if silent >= max(support, against):
        return Verdict(sentence, NOT_FOUND, by="model", judged=True)
    spans = [(span.first, span.last) for span in judged.evidence] or [(judged.start, judged.end - 1)]
    edges = [clause_around(document.text, int(offsets[first, 0]), int(offsets[last, 1])) for first, last in spans]
    edges = list(without_overlaps(edges, lambda own: own))
    around = document.text[int(offsets[judged.start, 0]) : int(offsets[judged.end - 1, 1])]
    passage, *also = (answer_at(document.content, *own, max(support, against)) for own in edges)
    if support > against and set(NUMBER.findall(sentence)) - set(NUMBER.findall(around)):
        return Verdict(sentence, NOT_FOUND, passage, "model", "the passage has other numbers", True)
    verdict = SUPPORTED if support > against else CONTRADICTED
    return Verdict(sentence, verdict, passage, "model", judged=True, also=tuple(also))


def clause_around(text: str, start: int, end: int) -> tuple[int, int]:
    """The sentence or the items of a list that hold text[start:end]: evidence is read as a whole clause."""
    first, last = max(0, start - REACH), min(len(text), end + REACH)
    around = text[first:last]
    starts, stops = [0] if first == 0 else [], [len(around)] if last == len(text) else []
    for match in (*ITEM.finditer(around), *LINE.finditer(around)):
        starts.append(match.end())
        stops.append(match.start())
    for stop, begin in sentence_ends(around):
        starts.append(begin)
        stops.append(stop)
    begins = first + max((place for place in starts if first + place <= start), default=start - first)
    ends = first + min((place for place in stops if first + place >= end), default=end - first)
    return begins, begins + len(text[begins:ends].rstrip())


def judged_windows(
    document: Askable, head: Any, sentence: str, model: str | None
) -> "tuple[WindowVerdict | None, Any]":
    from vcc.data.features import tokenize_text
    from vcc.qa.verdicts import ALL_BELOW, judge

    asker = document.asker(model)
    tokens = tokenize_text(document.text, asker.tokenizer)
    statement = asker.qa.ids_of(sentence)
    pointers: list[Any] = []
    if len(tokens.ids) > ALL_BELOW * asker.qa.config.window // 2:  # a short one is read whole
        pointers = [document.with_index(model, lambda index: asker.find(index, [sentence], 3)).found[0]]
    return judge(asker.qa.windows, head, tokens.ids, statement, pointers), tokens.offsets
