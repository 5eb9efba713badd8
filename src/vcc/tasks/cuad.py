"""CUAD: which parts of a contract does a lawyer have to review? Spans: none, one or several."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from vcc.data.example import Example, Prediction
from vcc.data.records import Record, load_records
from vcc.tasks.metrics import clause_scores
from vcc.tasks.squad import squad_examples
from vcc.tasks.task import Split, Task


@final
@dataclass(frozen=True)
class Cuad(Task):
    """41 clause questions on each contract, as published (SQuAD JSON) or as lines with answers only."""

    name = "cuad"
    heads = ("span",)
    vips = "clause question"
    metric_names = ("aupr", "p80", "f1")
    like = "hotpotqa"
    unlike = {"length": 16384}
    hub = "theatticusproject/cuad-qa"
    no_answer = True
    max_answer_tokens = 512

    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        records = load_records(self.name, split, source, self.hub)
        if records and records[0].has("doc_id"):
            return [_from_strings(record) for record in records]
        return squad_examples(records)

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        return clause_scores(predictions, examples)


def _from_strings(record: Record) -> Example:
    """Answers without positions: the first occurrence of the text, where spaces and line ends are equal.

    An answer whose text is not in the document (a few percent) is still scored, without a span.
    """
    document, answers = record.get("document"), record.texts("answers")
    spans = {span for span in (find_text(answer, document) for answer in answers) if span}
    return Example(
        record.get("id"),
        record.get("question"),
        document,
        answers,
        tuple(sorted(spans)),
        group=record.get("doc_id"),
        meta={"category": record.get("category")},
    )


def find_text(answer: str, document: str) -> tuple[int, int] | None:
    """The first occurrence of an answer in a document, exactly or up to whitespace."""
    start = document.find(answer)
    if start >= 0:
        return (start, start + len(answer)) if answer else None
    words = answer.split()
    found = re.search(r"\s+".join(map(re.escape, words)), document) if words else None
    return found.span() if found else None
