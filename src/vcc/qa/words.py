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
    asked = [np.unique(np.concatenate([single(question), pairs(question)])) for question in questions]
    words = np.unique(np.concatenate(asked)) if asked else np.zeros(0, np.int64)
    all_scores = word_scores(ids, words)
    found = []
    for own in asked:
        scores = all_scores[np.searchsorted(words, own)].sum(0)
        best = np.argsort(-scores, kind="stable")[:top]
        found.append(
            [
                ScoredSpan(int(piece) * BLOCK, min((int(piece) + 2) * BLOCK, len(ids)) - 1, float(scores[piece]))
                for piece in best
                if scores[piece] > 0
            ]
        )
    return found


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
        for numbers in (single(some[:AT_ONCE]), pairs(some)):
            which = np.searchsorted(words, numbers).clip(max=len(words) - 1)
            at = np.flatnonzero(words[which] == numbers)
            np.add.at(times, (which[at], (first + at) // BLOCK), 1)
    times = times[:, :-1] + times[:, 1:]
    holding = (times > 0).sum(1, keepdims=True)
    rarity = np.log1p((times.shape[1] - holding + 0.5) / (holding + 0.5))
    scores: Floats = rarity * times * (SATURATION + 1) / (times + SATURATION)
    return scores
