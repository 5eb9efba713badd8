"""Find passages by the words they share with a question, above all rare ones, names and numbers.

The tree's scores capture what a passage is about, but may miss a name that occurs once. This is BM25 over short
overlapping pieces of the document. Each pair of neighbouring tokens of the question is one more word, because names and
numbers are split into several tokens.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vcc.data.answers import ScoredSpan

Ints = NDArray[np.integer]
Floats = NDArray[np.floating]

BLOCK = 64  # tokens; a piece is two blocks, and the next piece starts one block later
SATURATION = 1.2  # BM25's k1: how soon repetitions of a word stop counting
AT_ONCE = 2**20  # document tokens per batch; whole blocks


def best_matches(ids: Ints, questions: Sequence[Ints], top: int) -> list[list[ScoredSpan]]:
    """Return, per question, the best matching pieces of a document with tokens ids (n,), as spans, best first.

    Pieces without a match are left out.
    """
    if not questions:
        return []
    asked = [np.concatenate([single(question), pairs(question)]) for question in questions]
    words, which = np.unique(np.concatenate(asked), return_inverse=True)
    holds = np.zeros((len(questions), len(words)), bool)  # each word of a question counts once
    holds[np.repeat(np.arange(len(questions)), [len(own) for own in asked]), which] = True
    all_scores = word_scores(ids, words)
    scores = np.stack([all_scores[own].sum(0) for own in holds])
    best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    rows = zip(best.tolist(), np.take_along_axis(scores, best, 1).tolist(), strict=True)
    return [
        [
            ScoredSpan(piece * BLOCK, min((piece + 2) * BLOCK, len(ids)) - 1, score)
            for piece, score in zip(*row, strict=True)
            if score > 0
        ]
        for row in rows
    ]


def single(ids: Ints) -> Ints:
    """The key of each token."""
    return ids.astype(np.int64) << 32


def pairs(ids: Ints) -> Ints:
    """The key of each pair of neighbouring tokens, different from those of single ones."""
    return single(ids[:-1]) + ids[1:] + 1


def word_scores(ids: Ints, words: Ints) -> Floats:
    """BM25 scores (words, pieces) of each word, keys ascending, in each piece."""
    blocks = max(-(-len(ids) // BLOCK), 2)
    times = np.zeros((len(words), blocks), np.int32)
    for first in range(0, len(ids) if len(words) else 0, AT_ONCE):
        some = ids[first : first + AT_ONCE + 1]  # one more: the last token needs its neighbour
        known = np.isin(some, words >> 32)  # only tokens of the questions can match
        here = -(-len(some[:AT_ONCE]) // BLOCK)
        for numbers, maybe in ((single(some[:AT_ONCE]), known[:AT_ONCE]), (pairs(some), known[:-1] & known[1:])):
            at = np.flatnonzero(maybe)
            which = np.searchsorted(words, numbers[at]).clip(max=len(words) - 1)
            found = words[which] == numbers[at]
            cells = which[found] * here + at[found] // BLOCK
            counts = np.bincount(cells, minlength=len(words) * here).reshape(len(words), here)
            times[:, first // BLOCK : first // BLOCK + here] += counts
    times = times[:, :-1] + times[:, 1:]
    scores = np.zeros(times.shape)
    there = times.any(1)  # most words of many questions do not occur in a document
    times = times[there]
    holding = (times > 0).sum(1, keepdims=True)
    rarity = np.log1p((times.shape[1] - holding + 0.5) / (holding + 0.5))
    scores[there] = rarity * times * (SATURATION + 1) / (times + SATURATION)
    return scores
