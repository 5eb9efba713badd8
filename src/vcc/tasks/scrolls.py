"""Text tasks: a question or a summary. SCROLLS' format (id, input, output), or the data set's own fields."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

from vcc.data.example import SUMMARIZE, Example, Head, Prediction, text_key
from vcc.data.records import Record, load_records
from vcc.errors import DataError
from vcc.tasks.metrics import answer_scores, summary_scores
from vcc.tasks.task import Split, Task

Kind = Literal["answer", "summary on a question", "summary"]


@final
@dataclass(frozen=True)
class TextTask(Task):
    """One data set with text to generate; they differ only in these constants."""

    name: str
    kind: Kind
    hub: str = ""
    documents: tuple[str, ...] = ("document",)  # field names of the document, outside SCROLLS
    targets: tuple[str, ...] = ("summary",)  # field names of the target
    several: bool = False  # whether a list of targets is several references instead of sentences
    like: str = ""
    unlike: Mapping[str, Any] = field(default_factory=dict)

    heads: tuple[Head, ...] = ("text",)

    @property
    def vips(self) -> str:  # type: ignore[override]
        return f'"{SUMMARIZE}"' if self.kind == "summary" else "question"

    @property
    def metric_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("f1", "em") if self.kind == "answer" else ("rouge1", "rouge2", "rougeL")

    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        examples = [self._example(record) for record in load_records(self.name, split, source, self.hub)]
        return examples if split == "train" else merge_references(examples)

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        score = answer_scores if self.kind == "answer" else summary_scores
        return score(predictions, examples)

    def _example(self, record: Record) -> Example:
        if record.has("input"):
            question, document = self._split_input(record)
            answers = record.texts("output") if record.has("output") else ()
        else:
            document = "\n".join(record.texts(*self.documents)).replace(" NEWLINE_CHAR ", "\n")  # Multi-News' line ends
            question = SUMMARIZE if self.kind == "summary" else record.get("question")
            answers = tuple(re.sub(r"</?S>", "", text).strip() for text in record.texts(*self.targets))  # arXiv's tags
            answers = answers if self.several else (" ".join(answers),)
        id = str(record.fields.get("id", record.where))
        return Example(id, question, document, answers, group=str(record.fields.get("doc_id") or text_key(document)))

    def _split_input(self, record: Record) -> tuple[str, str]:
        """SCROLLS writes the question, an empty line, the document; a plain summary has the document alone."""
        text = record.get("input")
        if self.kind == "summary":
            return SUMMARIZE, text
        question, gap, document = text.partition("\n\n")
        if not gap:
            raise DataError(f"{record.where}: input must be: question, an empty line, document")
        return question.strip(), document.strip()


def merge_references(examples: Sequence[Example]) -> list[Example]:
    """SCROLLS repeats an id for each reference: they become one example. In training, each is a target."""
    merged: dict[str, Example] = {}
    for example in examples:
        seen = merged.get(example.id)
        merged[example.id] = example if seen is None else replace(seen, answers=seen.answers + example.answers)
    return list(merged.values())
