"""One question on one document, and one prediction: what tasks, models and metrics exchange."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from vcc.errors import DataError

Head = Literal["span", "choice", "text"]

SUMMARIZE = "summarize:"  # the paper's VIP text if there is no question
UNANSWERABLE = "unanswerable"  # a text head's output if the document has no answer (SCROLLS' word)


def text_key(text: str) -> str:
    """A short name for an unnamed document, to group its questions."""
    return f"{zlib.crc32(text.encode()):08x}-{len(text)}"


@dataclass(frozen=True)
class Example:
    """A question (its tokens are the VIPs) on a document (its tokens are the context).

    `answers` are all accepted answers; `()` means that the document has none.
    `answer_spans` are character ranges of `document`, end excluded: `document[start:end]`.
    `choices` are the options of a multiple-choice question, `label` the index of the right one (None: unknown).
    `group` is the unit that is resampled in a confidence interval: the document, so 41 questions on one contract
    are one draw. `meta` holds what a metric is broken down by, such as length and depth.
    """

    id: str
    question: str
    document: str
    answers: tuple[str, ...] = ()
    answer_spans: tuple[tuple[int, int], ...] = ()
    choices: tuple[str, ...] = ()
    label: int | None = None
    group: str = ""
    meta: Mapping[str, float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for start, end in self.answer_spans:
            if not 0 <= start < end <= len(self.document):
                raise DataError(
                    f"example {self.id!r}: answer span ({start}, {end}) must be non-empty and inside"
                    f" its document of {len(self.document)} characters"
                )
        if self.label is not None and not 0 <= self.label < len(self.choices):
            raise DataError(f"example {self.id!r}: label {self.label} must index {len(self.choices)} choices")


@dataclass(frozen=True)
class Prediction:
    """A model's prediction for one example.

    `text` is the answer ("" = no answer). `choice` is set by the choice head only. `spans` is set by the span
    head: every candidate as (text, probability), best first, each text once with its highest probability; CUAD's curve
    needs them all, others read `text`.
    """

    id: str
    text: str = ""
    choice: int | None = None
    spans: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        best: dict[str, float] = {}
        for text, chance in self.spans:
            best[text] = max(chance, best.get(text, chance))
        object.__setattr__(self, "spans", tuple(best.items()))
