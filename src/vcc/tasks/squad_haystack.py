"""SQuAD with its paragraph hidden among others, or in a book, up to any length."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, final

import numpy as np

from vcc.data.example import Example, Prediction
from vcc.data.haystack import TOKENS_PER_WORD, Generated, Paragraphs, TokenCount, hide, made_to_fit
from vcc.tasks.books import DEPTHS, LENGTHS, SEED, book_paragraphs, check_places, pick
from vcc.tasks.metrics import check_pairs, exact_by
from vcc.tasks.squad import Squad, squad_scores
from vcc.tasks.task import SPLITS, Split, Task


@final
@dataclass(frozen=True)
class SquadHaystack(Task):
    """The paragraph of each question, at a depth of a text of at most `lengths` tokens.

    Lengths and depths are used in turn; the depth is random by default. The filler is paragraphs of
    other SQuAD articles, or running book text (needs a folder with both `squad` and `books`).
    """

    lengths: Annotated[tuple[int, ...], LENGTHS] = (4096,)
    depths: Annotated[tuple[float, ...], DEPTHS] = ()
    filler: Annotated[Literal["squad", "books"], "the filler: paragraphs of other articles, or books"] = "squad"
    seed: Annotated[int, SEED] = 0
    count: TokenCount | None = None

    name = "squad_haystack"
    heads = ("span", "text")
    vips = "question"
    options = ("lengths", "depths", "filler", "seed")
    metric_names = ("f1", "em")
    like = "hotpotqa"
    hub = "rajpurkar/squad"
    no_answer = True

    def counting(self, count: TokenCount) -> Task:
        return replace(self, count=count)

    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        check_places(self.lengths, self.depths, self.seed)
        questions = Squad().load(split, source)
        if self.filler == "books":
            hay = book_paragraphs(split, source)
        else:
            hay = Paragraphs.of([(owner, text) for text, owner in {e.document: e.group for e in questions}.items()])

        def make(i: int) -> Example:
            example = questions[i]
            length = self.lengths[i % len(self.lengths)]

            def hidden_in(words: int) -> Example:
                rng = np.random.default_rng([self.seed, SPLITS.index(split), i])
                _, depth = pick(i, self.lengths, self.depths, rng)
                books = self.filler == "books"
                filler = hay.running(rng, words) if books else hay.mixed(rng, words, without=example.group)
                hidden = hide([example.document], filler, [depth])
                spans = tuple((start + hidden.starts[0], end + hidden.starts[0]) for start, end in example.answer_spans)
                meta = {"length": length, "depth": depth}
                return replace(example, document=hidden.document, answer_spans=spans, meta=meta)

            words = int(length / TOKENS_PER_WORD) - len(f"{example.document} {example.question}".split())
            return made_to_fit(hidden_in, words, length, self.count)

        return Generated(len(questions), make, (questions, hay.owners, hay.texts))

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        check_pairs(predictions, examples)
        return (
            squad_scores(predictions, examples)
            | exact_by("length", predictions, examples)
            | exact_by("depth", predictions, examples)
        )
