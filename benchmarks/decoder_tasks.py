"""Things hidden in a long context, and questions after them: each has one right answer, known in tokens.

In the manner of RULER, from generators of our own. The context is read before the questions are known, so that many can
continue from one reading.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

NAMES = ("Alice", "Bruno", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Irene", "James", "Karen", "Louis")
THINGS = ("apple", "river", "candle", "mountain", "silver", "garden", "window", "castle", "forest", "pepper", "ribbon")
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "


@dataclass(frozen=True, eq=False)
class Question:
    """What follows the context, and how it must go on; `choices`: tokens among which the answer's are the likeliest."""

    ids: Tensor  # (q,)
    answer: Tensor  # (a,)
    choices: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Trial:
    context: Tensor  # (n,)
    questions: tuple[Question, ...]


def tokens(tokenizer: Any, text: str) -> Tensor:
    return tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids[0].long()


def hidden(tokenizer: Any, hay: Tensor, needles: Sequence[str], length: int, draw: random.Random) -> Tensor:
    """(length,) the hay with each needle at a place of its own, at the end of a sentence, in the order given."""
    inserted = [tokens(tokenizer, needle) for needle in needles]
    room = length - sum(map(len, inserted))
    stops = set(tokens(tokenizer, ". ! ? .\n").tolist())
    ends = [place + 1 for place, token in enumerate(hay[:room].tolist()) if token in stops and place > 32]
    places = sorted(draw.sample(ends, len(needles)))
    pieces, before = [], 0
    for place, needle in zip(places, inserted, strict=True):
        pieces += [hay[before:place], needle]
        before = place
    return torch.cat([*pieces, hay[before:room]])


def passkey(tokenizer: Any, hay: Tensor, length: int, draw: random.Random) -> Trial:
    """Four people's pass keys of five digits in a book."""
    keys = {name: f"{draw.randrange(10000, 100000)}" for name in draw.sample(NAMES, 4)}
    needles = [
        f" The pass key of {name} is {key}. Remember it: {name}'s pass key is {key}." for name, key in keys.items()
    ]
    asked = [
        Question(
            tokens(tokenizer, f"\n\nWhat is the pass key of {name}? The pass key of {name} is"),
            tokens(tokenizer, f" {key}"),
        )
        for name, key in keys.items()
    ]
    return Trial(hidden(tokenizer, hay, needles, length, draw), tuple(asked))


def needle(tokenizer: Any, hay: Tensor, length: int, draw: random.Random) -> Trial:
    """Numbers of eight words, four of them asked for, among sentences that repeat (RULER's niah with many keys)."""
    hay = tokens(tokenizer, NOISE * (length // 20))
    numbers = {word: f"{draw.randrange(1000000, 10000000)}" for word in draw.sample(THINGS, 8)}
    needles = [f" One of the special magic numbers for {word} is: {number}." for word, number in numbers.items()]
    asked = [
        Question(
            tokens(tokenizer, f"\nThe special magic number for {word} mentioned in the text is:"),
            tokens(tokenizer, f" {number}"),
        )
        for word, number in list(numbers.items())[:4]
    ]
    return Trial(hidden(tokenizer, hay, needles, length, draw), tuple(asked))


def variables(tokenizer: Any, hay: Tensor, length: int, draw: random.Random) -> Trial:
    """Four chains of three assignments among sentences that repeat; what is asked is the value at a chain's end."""
    hay = tokens(tokenizer, NOISE * (length // 20))
    letters = draw.sample([a + b + c for a in "ABCDEFGH" for b in "JKLMNPQR" for c in "STUVWXYZ"], 12)
    needles, asked = [], []
    for chain in range(4):
        first, second, third = letters[3 * chain : 3 * chain + 3]
        value = f"{draw.randrange(10000, 100000)}"
        needles += [f" VAR {first} = {value}.", f" VAR {second} = VAR {first}.", f" VAR {third} = VAR {second}."]
        asked.append(
            Question(
                tokens(tokenizer, f"\nQuestion: what is the value of VAR {third}?\nAnswer: VAR {third} = VAR {second}"),
                tokens(tokenizer, f" = VAR {first} = {value}"),
            )
        )
    return Trial(hidden(tokenizer, hay, needles, length, draw), tuple(asked))


def common_words(tokenizer: Any, hay: Tensor, length: int, draw: random.Random) -> Trial:
    """A list in which ten words stand ten times as often as the others: are they the likeliest to come next?"""
    words = [word for word in single_words(tokenizer) if draw.random() < 0.5]
    common, rare = draw.sample(words, 10), []
    listed = common * max(2, length // 45)
    each = max(1, length // 450)
    rare = draw.sample([word for word in words if word not in common], min(len(words) - 10, length // (4 * each)))
    listed += rare * each
    draw.shuffle(listed)
    text = "Memorize the words below.\n" + ",".join(listed)
    asked = tokens(
        tokenizer, "\nQuestion: which words stand most often in the list above?\nAnswer: the most common words are"
    )
    ids = tokens(tokenizer, text)[:length]
    seen = set(ids.tolist())
    choices = torch.cat([tokens(tokenizer, word) for word in rare if tokens(tokenizer, word)[0].item() in seen])
    return Trial(ids, (Question(asked, torch.cat([tokens(tokenizer, word) for word in common]), choices),))


def single_words(tokenizer: Any) -> list[str]:
    """Words of the vocabulary that are one token, after a blank."""
    words = (tokenizer.decode([token]) for token in range(300, 20000))
    return [
        word
        for word in words
        if word[:1] == " " and word[1:].isascii() and word[1:].isalpha() and word.islower() and len(word) > 5
    ]


TASKS: dict[str, Callable[[Any, Tensor, int, random.Random], Trial]] = {
    "passkey": passkey,
    "needle": needle,
    "variables": variables,
    "common words": common_words,
}


def trials(task: str, tokenizer: Any, hays: Iterator[Tensor], length: int) -> Iterator[Trial]:
    """One for each hay; the same numbers give the same trials."""
    for number, hay in enumerate(hays):
        yield TASKS[task](tokenizer, hay, length, random.Random(f"{task} {length} {number}"))


def right(question: Question, logits: Tensor) -> float:
    """How right the model is: whether it would write the answer, or how many of the likeliest choices are answers.

    `logits` (a, vocabulary): what it expects after the question, and after each token of the answer but the last.
    """
    if question.choices is None:
        return float((logits.argmax(1) == question.answer).all())
    candidates = torch.cat([question.answer, question.choices])
    best = logits[0, candidates].topk(len(question.answer)).indices
    return float((best < len(question.answer)).float().mean())
