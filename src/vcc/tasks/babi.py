"""bAbI: a few facts and a question, the facts hidden one by one, in order, in a book."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, final

import numpy as np

from vcc.data.example import Example, Prediction
from vcc.data.haystack import TOKENS_PER_WORD, Generated, TokenCount, hide, made_to_fit
from vcc.data.records import Record, load_records
from vcc.errors import DataError
from vcc.tasks.books import DEPTHS, LENGTHS, SEED, book_paragraphs, check_places, pick
from vcc.tasks.needle import needle_scores
from vcc.tasks.task import SPLITS, Split, Task

# The tasks whose answer is always a word of a supporting fact, so a span can be the answer.
SPAN_TASKS = ("qa1", "qa2", "qa3", "qa4", "qa5", "qa11", "qa12", "qa13", "qa14", "qa16")


@final
@dataclass(frozen=True)
class BabiInBooks(Task):
    """Needs a folder with both `babi` and `books`. bAbI has no validation split: it is every tenth training question.

    The first fact is at the depth (random by default); the others follow at random places, in order.
    """

    lengths: Annotated[tuple[int, ...], LENGTHS] = (4096,)
    depths: Annotated[tuple[float, ...], DEPTHS] = ()
    tasks: Annotated[tuple[str, ...], "which of bAbI's 20"] = SPAN_TASKS
    seed: Annotated[int, SEED] = 0
    count: TokenCount | None = None

    name = "babi_in_books"
    heads = ("span", "text")
    vips = "question"
    options = ("lengths", "depths", "tasks", "seed")
    metric_names = ("em",)
    like = "hotpotqa"
    unlike = {"epochs": (1,), "output_length": 16}
    max_answer_tokens = 8

    def counting(self, count: TokenCount) -> Task:
        return replace(self, count=count)

    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        check_places(self.lengths, self.depths, self.seed)
        hay = book_paragraphs(split, source)
        records = load_records("babi", "test" if split == "test" else "train", source, self.hub)
        stories = [record for record in records if record.get("task") in self.tasks]
        if not stories:
            raise DataError(f"tasks {self.tasks} must name bAbI tasks such as {SPAN_TASKS}")
        if split != "test":
            stories = [story for i, story in enumerate(stories) if (i % 10 == 0) == (split == "validation")]

        def make(i: int) -> Example:
            story = stories[i]
            facts = story.texts("facts")
            length = self.lengths[i % len(self.lengths)]

            def hidden_in(words: int) -> Example:
                rng = np.random.default_rng([self.seed, SPLITS.index(split), i])
                _, depth = pick(i, self.lengths, self.depths, rng)
                depths = sorted(depth + (1 - depth) * share for share in [0.0, *rng.random(len(facts) - 1)])
                hidden = hide(facts, hay.running(rng, words), depths)
                answer = " ".join(story.texts("answers"))  # path finding has two-word answers
                spans = tuple(_spans(story, answer, hidden.starts))
                meta = {"length": length, "depth": depth}
                return Example(story.get("id"), story.get("question"), hidden.document, (answer,), spans, meta=meta)

            words = int(length / TOKENS_PER_WORD) - len(" ".join([*facts, story.get("question")]).split())
            return made_to_fit(hidden_in, words, length, self.count)

        return Generated(len(stories), make, ([story.fields for story in stories], hay.owners, hay.texts))

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        return needle_scores(predictions, examples)


def _spans(story: Record, answer: str, starts: Sequence[int]) -> list[tuple[int, int]]:
    """The answer's places in the facts that support it."""
    facts, support = story.texts("facts"), story.get("support", kind=list)
    return [
        (starts[i] + m.start(), starts[i] + m.end())
        for i in sorted(set(support))
        for m in re.finditer(rf"\b{re.escape(answer)}\b", facts[i])
    ]
