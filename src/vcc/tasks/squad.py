"""SQuAD 1.1 and 2.0, and the parser of its format, which CUAD shares."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, final

import numpy as np

from vcc.data.example import UNANSWERABLE, Example, Prediction, text_key
from vcc.data.records import Record, load_records
from vcc.errors import DataError
from vcc.tasks.metrics import Floats, Scores, answer_scores, best_of, check_pairs, exact, mean_scores, word_f1
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
    options = ("half",)

    half: Annotated[
        Literal["both", "first", "second"],
        "half of the articles; the bundled model was trained on the first half of the validation split",
    ] = "both"

    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        examples = squad_examples(load_records("squad", split, source, self.hub))
        if self.half == "both":
            return examples
        articles = list(dict.fromkeys(example.group for example in examples))
        first = set(articles[: len(articles) // 2])
        return [example for example in examples if (example.group in first) == (self.half == "first")]

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        return squad_scores(predictions, examples) | scores_at_chosen_threshold(predictions, examples)


def squad_scores(predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
    """em and f1; a text head's word for "no answer" counts as none."""
    return answer_scores(
        [replace(p, text="") if p.text.lower() == UNANSWERABLE else p for p in predictions], examples, no_answer=True
    )


def scores_at_chosen_threshold(predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
    """SQuAD 2.0's official scores, overall and by kind of question, where an answer needs a certain lead over "no
    answer". Each half of the articles has the lead that gives the best F1 on the other half.

    Empty if there is nothing to choose: one article, or predictions without scored candidates.
    """
    check_pairs(predictions, examples)
    groups = {group: i % 2 for i, group in enumerate(dict.fromkeys(example.group for example in examples))}
    if len(groups) < 2 or not any(prediction.spans for prediction in predictions):
        return {}
    own = np.array([groups[example.group] for example in examples])
    leads = np.array([lead_of(prediction) for prediction in predictions])
    texts = [prediction.spans[0][0] if prediction.spans else "" for prediction in predictions]
    gains = np.array([best_of(word_f1, text, e.answers) for text, e in zip(texts, examples, strict=True)])
    gains -= [float(not example.answers) for example in examples]
    chosen = [best_threshold(leads[own != half], gains[own != half]) for half in (0, 1)]
    said = [text if lead > chosen[half] else "" for text, lead, half in zip(texts, leads, own, strict=True)]
    values = {
        name: [best_of(score, text, e.answers) for text, e in zip(said, examples, strict=True)]
        for name, score in (("em", exact), ("f1", word_f1))
    }
    found: Scores = {}
    kinds = {
        "official": lambda _: True,
        "official_answerable": lambda e: bool(e.answers),
        "official_unanswerable": lambda e: not e.answers,
    }
    for kind, holds in kinds.items():
        places = [i for i, example in enumerate(examples) if holds(example)]
        if places:
            some = {f"{kind}_{name}": [value[i] for i in places] for name, value in values.items()}
            found |= mean_scores(some, [examples[i] for i in places])
    return found


def lead_of(prediction: Prediction) -> float:
    """The logarithm of the best candidate's probability over that of "no answer"."""
    if not prediction.spans:
        return -np.inf
    none = 1 - sum(chance for _, chance in prediction.spans)
    return float(np.log(max(prediction.spans[0][1], 1e-30)) - np.log(max(none, 1e-9)))


def best_threshold(leads: Floats, gains: Floats) -> float:
    """Return the lead above which answering gains the most over never answering."""
    order = np.argsort(-leads, kind="stable")
    answered = int(np.concatenate([[0.0], np.cumsum(gains[order])]).argmax())
    return -np.inf if answered == len(order) else float(leads[order[answered]])


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
