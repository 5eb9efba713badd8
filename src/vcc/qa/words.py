"""Passages by the words that they share with a question: rare ones, names and numbers above all.

The tree's scores see what a passage is about; they may miss a name that stands in it once. Matching tokens is BM25 over
short overlapping pieces of the document, in which a question's neighbouring tokens count as one more word: names and
numbers are split into several.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vcc.data.answers import ScoredSpan

Ints = NDArray[np.integer]
Floats = NDArray[np.floating]

BLOCK = 64  # tokens; a piece is two blocks, and the next one starts a block later
SATURATION = 1.2  # BM25's k1: how soon more of the same word stops to count
AT_ONCE = 2**20  # tokens of a document that are looked through at once; whole blocks


def best_matches(ids: Ints, questions: Sequence[Ints], top: int) -> list[list[ScoredSpan]]:
    """For each question the pieces of a document, of tokens ids (n,), that match it best, as spans; best first.

    A piece without any match is not among them.
    """
    if not questions:
        return []
    asked = [np.concatenate([single(question), pairs(question)]) for question in questions]
    words, which = np.unique(np.concatenate(asked), return_inverse=True)
    holds = np.zeros((len(questions), len(words)), bool)  # each of its words once, however often it is asked
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
    """A number for each token."""
    return ids.astype(np.int64) << 32


def pairs(ids: Ints) -> Ints:
    """A number for each token and the next, other than those of single ones."""
    return single(ids[:-1]) + ids[1:] + 1


def word_scores(ids: Ints, words: Ints) -> Floats:
    """(words, pieces) BM25's score of each word, numbers in order, in each piece."""
    blocks = max(-(-len(ids) // BLOCK), 2)
    times = np.zeros((len(words), blocks), np.int32)
    for first in range(0, len(ids) if len(words) else 0, AT_ONCE):
        some = ids[first : first + AT_ONCE + 1]  # the last has a neighbour, and is the next turn's first
        known = np.isin(some, words >> 32)  # tokens of questions: only these are looked for among the words
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
    there = times.any(1)  # of several questions, most words stand nowhere in a document
    times = times[there]
    holding = (times > 0).sum(1, keepdims=True)
    rarity = np.log1p((times.shape[1] - holding + 0.5) / (holding + 0.5))
    scores[there] = rarity * times * (SATURATION + 1) / (times + SATURATION)
    return scores
