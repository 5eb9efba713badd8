"""Needle: find the value of one key in a long text. Generated from a small vocabulary, or sentences hidden in books."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, final

import numpy as np

from vcc.data.example import Example, Prediction
from vcc.data.haystack import TOKENS_PER_WORD, Generated, TokenCount, hide, made_to_fit
from vcc.errors import DataError, UsageError
from vcc.tasks.books import DEPTHS, LENGTHS, SEED, book_paragraphs, check_places, pick
from vcc.tasks.metrics import answer_scores, exact_by
from vcc.tasks.task import SPLITS, Split, Task

KEYS = tuple(f"key{i}" for i in range(8))
VALUES = tuple(f"value{i}" for i in range(64))
ASKED, SAID = 8, 4  # repetitions of the key in the question, and of each pair in the text
NOISE = tuple(f"word{i}" for i in range(128))
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZES = {"train": 20_000, "validation": 500, "test": 500}


@final
@dataclass(frozen=True)
class Needle(Task):
    """The question is `key7`; the text is noise with `pairs` pairs of different keys; the answer is `key7 value3`.

    One word is one token of `needle_tokenizer()`, and `lengths` counts all tokens of the row, special ones too, so
    a row of length 4096 is exactly full. The depth is that of the right pair, random by default.
    Example i depends only on (seed, split, i).

    Designed to be learned from scratch. The start of the answer is the word in the question, which one attention step
    can match; its end is any value, which needs no context; together they give the pair. The key is repeated ASKED
    times in the question and each pair SAID times in the text, because attention starts out uniform: one word in
    thousands has almost no gradient, nor has one in the mean of a segment. A model of width D should start with
    `initializer_range` near 1 / sqrt(D): at BERT's 0.02 a tiny model's attention is uniform, and stays so.
    """

    lengths: Annotated[tuple[int, ...], LENGTHS] = (4096,)
    depths: Annotated[tuple[float, ...], DEPTHS] = ()
    pairs: Annotated[int, "keys that are hidden; the question asks for one"] = 4
    seed: Annotated[int, SEED] = 0
    train_examples: Annotated[int, "examples in the training split"] = SIZES["train"]

    name = "needle"
    heads = ("span", "text")
    vips = "question"
    options = ("lengths", "depths", "pairs", "seed", "train_examples")
    metric_names = ("em",)
    like = "hotpotqa"
    unlike = {"learning_rates": (1e-3,), "epochs": (1,), "warmup_steps": 100, "output_length": 8}
    max_answer_tokens = 2

    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        if source is not None:
            raise DataError(f"needle is generated: it takes no source (got {source!r})")
        check_places(self.lengths, self.depths, self.seed)
        if not 1 <= self.pairs <= len(KEYS):
            raise UsageError(f"pairs {self.pairs} must lie in 1..{len(KEYS)}")
        count = self.train_examples if split == "train" else SIZES[split]
        return Generated(count, lambda i: self._example(split, i))

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        return needle_scores(predictions, examples)

    def _example(self, split: Split, i: int) -> Example:
        rng = np.random.default_rng([self.seed, SPLITS.index(split), i])
        length, depth = pick(i, self.lengths, self.depths, rng)
        room = length - ASKED - 3  # [CLS] key key ... [SEP] document [SEP]
        slots = room // (2 * SAID)  # pairs in different slots never overlap
        if slots < self.pairs:
            raise UsageError(f"length {length} has room for {slots} pairs, not {self.pairs}")
        words = rng.choice(NOISE, size=room)
        place = round(depth * (slots - 1))
        others = rng.permutation(np.delete(np.arange(slots), place))[: self.pairs - 1]
        keys = rng.choice(KEYS, size=self.pairs, replace=False)
        values = rng.choice(VALUES, size=self.pairs, replace=False)
        for slot, key, value in zip([place, *others], keys, values, strict=True):
            words[2 * SAID * slot : 2 * SAID * (slot + 1)] = [key, value] * SAID
        start, answer = sum(len(word) + 1 for word in words[: 2 * SAID * place]), f"{keys[0]} {values[0]}"
        starts = [start + i * (len(answer) + 1) for i in range(SAID)]
        return Example(
            f"{split}-{i}",
            " ".join([keys[0]] * ASKED),
            " ".join(words),
            (answer,),
            tuple((start, start + len(answer)) for start in starts),
            meta={"length": length, "depth": depth},
        )


def needle_tokenizer() -> Any:
    """A BERT-like tokenizer of 205 whole words, for models trained on `Needle` from scratch."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate((*SPECIAL, *KEYS, *VALUES, *NOISE))}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


# --- the same in natural language ------------------------------------------------------------------------------------

CITIES = (
    "Accra",
    "Bergen",
    "Cusco",
    "Dakar",
    "Essen",
    "Fukuoka",
    "Ghent",
    "Hobart",
    "Izmir",
    "Jaipur",
    "Kyiv",
    "Lima",
    "Malmo",
    "Nairobi",
    "Oaxaca",
    "Porto",
    "Quito",
    "Riga",
    "Salta",
    "Tunis",
    "Utrecht",
    "Varna",
)


@final
@dataclass(frozen=True)
class NeedleInBooks(Task):
    """ "The secret number of Lima is 48213." hidden in books, with `pairs` - 1 other cities' numbers elsewhere."""

    lengths: Annotated[tuple[int, ...], LENGTHS] = (4096,)
    depths: Annotated[tuple[float, ...], DEPTHS] = ()
    pairs: Annotated[int, "keys that are hidden; the question asks for one"] = 4
    seed: Annotated[int, SEED] = 0
    train_examples: Annotated[int, "examples in the training split"] = SIZES["train"]
    count: TokenCount | None = None

    name = "needle_in_books"
    heads = ("span", "text")
    vips = "question"
    options = ("lengths", "depths", "pairs", "seed", "train_examples")
    metric_names = ("em",)
    like = "hotpotqa"
    unlike = {"epochs": (1,), "warmup_steps": 100, "output_length": 16}
    max_answer_tokens = 8

    def counting(self, count: TokenCount) -> Task:
        return replace(self, count=count)

    def load(self, split: Split, source: str | None = None) -> Sequence[Example]:
        check_places(self.lengths, self.depths, self.seed)
        if not 1 <= self.pairs <= len(CITIES):
            raise UsageError(f"pairs {self.pairs} must lie in 1..{len(CITIES)}")
        hay = book_paragraphs(split, source)
        count = self.train_examples if split == "train" else SIZES[split]

        def make(i: int) -> Example:
            length = self.lengths[i % len(self.lengths)]

            def hidden_in(words: int) -> Example:
                rng = np.random.default_rng([self.seed, SPLITS.index(split), i])
                _, depth = pick(i, self.lengths, self.depths, rng)
                cities = rng.choice(CITIES, size=self.pairs, replace=False)
                numbers = rng.choice(90_000, size=self.pairs, replace=False) + 10_000
                facts = [f"The secret number of {city} is {n}." for city, n in zip(cities, numbers, strict=True)]
                depths = [depth, *rng.random(self.pairs - 1)]
                order = np.argsort(depths, kind="stable")
                hidden = hide([facts[j] for j in order], hay.running(rng, words), [depths[j] for j in order])
                end = hidden.starts[list(order).index(0)] + len(facts[0]) - 1
                return Example(
                    f"{split}-{i}",
                    f"What is the secret number of {cities[0]}?",
                    hidden.document,
                    (str(numbers[0]),),
                    ((end - 5, end),),
                    meta={"length": length, "depth": depth},
                )

            return made_to_fit(hidden_in, int(length / TOKENS_PER_WORD) - 10 - 8 * self.pairs, length, self.count)

        return Generated(count, make, (hay.owners, hay.texts))

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
        return needle_scores(predictions, examples)


def needle_scores(predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, float]:
    """em and f1 overall, em by length and by depth."""
    return (
        answer_scores(predictions, examples)
        | exact_by("length", predictions, examples)
        | exact_by("depth", predictions, examples)
    )
