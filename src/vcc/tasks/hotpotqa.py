"""HotpotQA, and two sets in the same form: questions whose answer needs two or more of the given paragraphs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from vcc.data.example import Example, Head, Prediction
from vcc.data.records import Record, load_records
from vcc.errors import DataError
from vcc.tasks.metrics import answer_scores
from vcc.tasks.task import Split, Task

YES_NO = "yes no\n\n"  # every document starts with this line, so a span can answer a yes-or-no question


@final
@dataclass(frozen=True)
class MultiHop(Task):
    """Paragraphs with titles become one document; every occurrence of the answer in them is a right span."""

    name: str = "hotpotqa"
    hub: str = "hotpotqa/hotpot_qa:distractor"
    like: str = ""

    heads: tuple[Head, ...] = ("span", "text")
    vips = "question"
    metric_names = ("f1", "em")

    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        return [multi_hop_example(record) for record in load_records(self.name, split, source, self.hub)]

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        return answer_scores(predictions, examples)


def multi_hop_example(record: Record) -> Example:
    answers, support = record.texts("answers", "answer"), _titles(record)
    parts, places, start = [], {True: [(0, len(YES_NO))], False: []}, len(YES_NO)
    for title, text in paragraphs_of(record):
        parts.append(f"{title}\n{text}\n\n")
        places[title in support].append((start, start + len(parts[-1])))
        start += len(parts[-1])
    document = YES_NO + "".join(parts).rstrip()
    # First the supporting paragraphs; then anywhere; then anywhere, ignoring case.
    spans = (
        _find(answers, document, places[True])
        or _find(answers, document, places[False])
        or _find(answers, document, [(0, len(document))], re.IGNORECASE)
    )
    return Example(
        str(record.get("_id", "id", kind=(str, int))), record.get("question"), document, answers, tuple(sorted(spans))
    )


def _find(
    answers: Sequence[str], document: str, ranges: Sequence[tuple[int, int]], flags: int = 0
) -> set[tuple[int, int]]:
    """Occurrences of an answer as whole words in these ranges; yes and no only in the first line."""
    found = set()
    for answer in answers:
        pattern = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)", flags)
        for start, end in [(0, len(YES_NO))] if answer in ("yes", "no") else ranges:
            found |= {match.span() for match in pattern.finditer(document, start, min(end, len(document)))}
    return found


def paragraphs_of(record: Record) -> list[tuple[str, str]]:
    """(title, text) pairs."""
    return [(title, text if isinstance(text, str) else _joined(text)) for title, text in _pairs(record)]


def sentences_of(record: Record, number: int) -> list[str]:
    """The sentences of a paragraph, as they are joined in its text; none if only the text is given."""
    _, text = _pairs(record)[number]
    return [] if isinstance(text, str) else [sentence.strip() for sentence in text]


def _pairs(record: Record) -> list[tuple[str, Any]]:
    """(title, sentences or text), from [[title, sentences or text, ...]] or the hub's {title: [], sentences: []}."""
    value: Any = record.get("context", "paragraphs", kind=(list, dict))
    pairs = zip(value["title"], value["sentences"], strict=True) if isinstance(value, dict) else value
    found = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) < 2:
            raise DataError(f"{record.where}: paragraph {pair!r:.80} must be [title, sentences]")
        found.append((pair[0], pair[1]))
    return found


def _joined(sentences: Sequence[str]) -> str:
    """Sentences of HotpotQA start with a space, those of 2WikiMultihop do not."""
    return " ".join(sentence.strip() for sentence in sentences)


def _titles(record: Record) -> set[str]:
    """The titles of the paragraphs that support the answer; MuSiQue marks the paragraphs themselves."""
    facts: Any = record.fields.get("supporting_facts") or []
    marked = {pair[0] for pair in record.fields.get("paragraphs") or () if len(pair) > 2 and pair[2] is True}
    return marked | (set(facts["title"]) if isinstance(facts, dict) else {fact[0] for fact in facts})
