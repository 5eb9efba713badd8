"""Question answering on whole texts; answers are exact substrings; one record per question."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from vcc.data.example import Example, Prediction
from vcc.data.records import Record, load_records
from vcc.errors import DataError
from vcc.tasks.metrics import answer_scores
from vcc.tasks.task import Split, Task


@final
@dataclass(frozen=True)
class SpanTask(Task):
    """Records with `context` or `document`, `answers` and where each starts; some may have no answer."""

    name: str = "fairytaleqa"
    no_answer: bool = False

    heads = ("span", "text")
    vips = "question"
    metric_names = ("f1", "em")
    like = "hotpotqa"

    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        return [_example(record) for record in load_records(self.name, split, source, self.hub)]

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        return answer_scores(predictions, examples, no_answer=self.no_answer)


def _example(record: Record) -> Example:
    document, answers = record.get("context", "document"), record.texts("answers")
    spans = []
    for text, start in zip(answers, record.get("answer_starts", kind=list), strict=True):
        if document[start : start + len(text)] != text:
            raise DataError(f"{record.where}: answer {text!r:.60} must be at character {start} of its document")
        spans.append((start, start + len(text)))
    group = record.get("doc_id") if record.has("doc_id") else ""
    return Example(
        record.get("id"), record.get("question").strip(), document, tuple(dict.fromkeys(answers)),
        tuple(sorted(set(spans))), group=group,
    )  # fmt: skip
