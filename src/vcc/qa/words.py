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


def best_matches(ids: Ints, questions: Sequence[Ints], top: int) -> list[list[ScoredSpan]]:
    """For each question the pieces of a document, of tokens ids (n,), that match it best, as spans; best first.

    A piece without any match is not among them.
    """
    n = len(ids)
    known: dict[tuple[int, ...], Floats] = {}  # what each word adds to the score of each piece
    found = []
    for question in questions:
        tokens = question.tolist()
        words = {(token,) for token in tokens} | set(zip(tokens, tokens[1:], strict=False))
        scores = np.zeros(max(-(-n // BLOCK) - 1, 1))
        for word in sorted(words):
            if word not in known:
                known[word] = word_scores(ids, word, len(scores))
            scores += known[word]
        best = np.argsort(-scores, kind="stable")[:top]
        found.append(
            [
                ScoredSpan(int(piece) * BLOCK, min((int(piece) + 2) * BLOCK, n) - 1, float(scores[piece]))
                for piece in best
                if scores[piece] > 0
            ]
        )
    return found


def word_scores(ids: Ints, word: tuple[int, ...], pieces: int) -> Floats:
    """(pieces,) BM25's score of one word, of one token or two, in each piece."""
    at = np.ones(len(ids) - len(word) + 1, dtype=bool) if len(ids) >= len(word) else np.zeros(0, dtype=bool)
    for place, token in enumerate(word):
        at &= ids[place : place + len(at)] == token
    blocks = np.bincount(np.flatnonzero(at) // BLOCK, minlength=pieces + 1)[: pieces + 1]
    times = blocks[:-1] + blocks[1:]
    holding = int((times > 0).sum())
    rarity = np.log1p((pieces - holding + 0.5) / (holding + 0.5))
    return rarity * times * (SATURATION + 1) / (times + SATURATION)
