"""WikiHop: which of up to 79 candidates answers a query, given several Wikipedia passages?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from vcc.data.example import Example, Prediction
from vcc.data.records import Record, load_records
from vcc.errors import DataError
from vcc.tasks.metrics import choice_scores
from vcc.tasks.task import Split, Task


@final
@dataclass(frozen=True)
class WikiHop(Task):
    """The published JSON: id, query ("country_of_citizenship ada lovelace"), answer, candidates, supports."""

    name = "wikihop"
    heads = ("choice", "text")
    vips = "question and candidates"
    metric_names = ("accuracy", "em", "f1")

    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        return [_example(record) for record in load_records(self.name, split, source, self.hub)]

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        return choice_scores(predictions, examples)


def _example(record: Record) -> Example:
    answer, candidates = record.get("answer"), record.texts("candidates")
    if answer not in candidates:
        raise DataError(f"{record.where}: answer {answer!r} must be one of its {len(candidates)} candidates")
    return Example(
        record.get("id"),
        record.get("query", "question").replace("_", " "),
        "\n\n".join(record.texts("supports")),
        (answer,),
        choices=candidates,
        label=candidates.index(answer),
    )
