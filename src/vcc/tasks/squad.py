"""SQuAD 1.1 and 2.0, and the parser of its format, which CUAD shares."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

from vcc.data.example import UNANSWERABLE, Example, Prediction, text_key
from vcc.data.records import Record, load_records
from vcc.errors import DataError
from vcc.tasks.metrics import answer_scores
from vcc.tasks.task import Split, Task


@final
@dataclass(frozen=True)
class Squad(Task):
    """Questions on one paragraph; version 2.0 has unanswerable ones."""

    name = "squad"
    heads = ("span", "text")
    vips = "question"
    metric_names = ("f1", "em")
    like = "hotpotqa"
    hub = "rajpurkar/squad"
    no_answer = True

    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        return squad_examples(load_records("squad", split, source, self.hub))

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        return squad_scores(predictions, examples)


def squad_scores(predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
    """em and f1; a text head's word for "no answer" counts as none."""
    return answer_scores(
        [replace(p, text="") if p.text.lower() == UNANSWERABLE else p for p in predictions], examples, no_answer=True
    )


def squad_examples(records: Iterable[Record]) -> list[Example]:
    """From the published JSON, hub rows ({text, answer_start}), or lines with answers and answer_starts."""
    return [example for record in records for example in (_articles(record) if record.has("data") else [_flat(record)])]


def _articles(file: Record) -> Iterable[Example]:
    for a, article in enumerate(file.get("data", kind=list)):
        for p, part in enumerate(article.get("paragraphs", ())):
            paragraph = Record(f"{file.where} article {a} paragraph {p}", part)
            for q, qa in enumerate(paragraph.get("qas", kind=list)):
                question = Record(f"{paragraph.where} question {q}", qa)
                answers = question.get("answers", kind=list)
                yield _example(
                    question,
                    paragraph.get("context"),
                    article.get("title", ""),
                    [answer["text"] for answer in answers],
                    [answer["answer_start"] for answer in answers],
                )


def _flat(record: Record) -> Example:
    answers = record.get("answers", kind=(list, dict))
    if isinstance(answers, dict):  # as on the hub
        texts, starts = answers["text"], answers["answer_start"]
    else:
        texts, starts = answers, record.get("answer_starts", kind=list)
    return _example(record, record.get("context"), record.get("title"), texts, starts)


def _example(record: Record, context: str, title: str, texts: Sequence[str], starts: Sequence[int]) -> Example:
    spans = []
    for text, start in zip(texts, starts, strict=True):
        if context[start : start + len(text)] != text:
            raise DataError(
                f"{record.where}: answer {text!r:.60} must be at character {start} of its context; "
                f"the text there is {context[start : start + len(text)]!r:.60}"
            )
        spans.append((start, start + len(text)))
    return Example(
        record.get("id"),
        record.get("question").strip(),
        context,
        tuple(dict.fromkeys(texts)),
        tuple(sorted(set(spans))),
        group=title or text_key(context),
    )
