"""QuALITY: four options for a question on a story of 5,000 words."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

from vcc.data.example import Example, Prediction, text_key
from vcc.data.records import Record, load_records
from vcc.errors import DataError
from vcc.tasks.metrics import choice_scores
from vcc.tasks.task import Split, Task

_OPTIONS = re.compile(r"(.*?)\n\s*\(A\) (.*?)\s*\(B\) (.*?)\s*\(C\) (.*?)\s*\(D\) (.*?)\n\n(.*)", re.DOTALL)


@final
@dataclass(frozen=True)
class Quality(Task):
    """Its own JSON lines (one article, its questions), or SCROLLS' (question, options and article in `input`)."""

    name = "quality"
    heads = ("choice", "text")
    vips = "question and options"
    metric_names = ("accuracy", "em", "f1")
    hub = "tau/scrolls"

    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        return [example for record in load_records(self.name, split, source, self.hub) for example in _read(record)]

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        return choice_scores(predictions, examples)


def _read(record: Record) -> Iterable[Example]:
    if record.has("input"):
        yield _from_scrolls(record)
    elif record.has("questions"):
        for i, fields in enumerate(record.get("questions", kind=list)):
            question = Record(f"{record.where} question {i}", fields)
            label = question.fields.get("gold_label")  # 1 to 4; absent in the test split
            yield _example(
                question.get("question_unique_id"),
                question,
                record.get("article"),
                record.get("article_id"),
                None if label is None else label - 1,
            )
    else:  # a flat table, as on the hub
        label = record.get("answer", kind=int)
        yield _example(record.where, record, record.get("article"), text_key(record.get("article")), label)


def _example(id: str, question: Record, article: str, group: str, label: int | None) -> Example:
    options = question.texts("options")
    return Example(
        id,
        question.get("question"),
        article,
        () if label is None else (options[label],),
        choices=options,
        label=label,
        group=group,
    )


def _from_scrolls(record: Record) -> Example:
    parts = _OPTIONS.fullmatch(record.get("input"))
    if parts is None:
        raise DataError(f"{record.where}: input must be: question, (A) (B) (C) (D) options, an empty line, article")
    question, *options, article = (part.strip() for part in parts.groups())
    answer = record.fields.get("output")
    if answer is not None and answer.strip() not in options:
        raise DataError(f"{record.where}: output {answer!r:.60} must be one of the options")
    return Example(
        record.get("id"),
        question,
        article,
        (answer.strip(),) if answer else (),
        choices=tuple(options),
        label=options.index(answer.strip()) if answer else None,
        group=text_key(article),
    )
