"""Pieces of a document by the words that they share with a question, against BM25 written out."""

import math

import numpy as np
import pytest

from vcc.qa.words import BLOCK, SATURATION, best_matches


def by_definition(ids: list[int], question: list[int]) -> list[float]:
    """BM25 without a length norm over overlapping pieces, word by word; a word is a token or two neighbours."""
    words = sorted({(t,) for t in question} | set(zip(question, question[1:], strict=False)))
    starts = range(0, max(len(ids) - BLOCK, 1), BLOCK)

    def times(word: tuple[int, ...], start: int) -> int:
        ends = range(start, min(start + 2 * BLOCK, len(ids)))
        return sum(tuple(ids[at : at + len(word)]) == word for at in ends)

    scores = []
    for start in starts:
        total = 0.0
        for word in words:
            holding = sum(times(word, other) > 0 for other in starts)
            rarity = math.log(1 + (len(starts) - holding + 0.5) / (holding + 0.5))
            total += rarity * times(word, start) * (SATURATION + 1) / (times(word, start) + SATURATION)
        scores.append(total)
    return scores


@pytest.mark.parametrize("n", [1, 63, 64, 65, 128, 129, 500])
def test_scores_are_those_of_the_definition(n: int) -> None:
    rng = np.random.default_rng(n)
    ids, question = rng.integers(0, 30, n), rng.integers(0, 30, 6)
    expected = by_definition(ids.tolist(), question.tolist())
    [found] = best_matches(ids, [question], 1000)
    assert [one.score for one in found] == pytest.approx(
        sorted((s for s in expected if s > 0), reverse=True), abs=1e-12
    )
    for one in found:
        assert one.score == pytest.approx(expected[one.first // BLOCK], abs=1e-12)
        assert one.first % BLOCK == 0 and one.last == min(one.first + 2 * BLOCK, n) - 1


def test_a_name_that_stands_once_is_found_among_a_hundred_thousand_tokens() -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(1000, 3000, 100_000)
    name = np.array([7, 8, 9])
    ids[70_000:70_003] = name
    question = np.concatenate([ids[[5, 50_000, 90_000]], name])  # words that stand all over the text, and the name
    for asked, found in zip([question, name], best_matches(ids, [question, name], 3), strict=True):
        assert found[0].first <= 70_000 <= found[0].last, asked


def test_a_long_document_is_looked_through_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    ids, questions = rng.integers(0, 4, 1000), [rng.integers(0, 4, 6), rng.integers(0, 4, 1)]
    whole = best_matches(ids, questions, 1000)
    monkeypatch.setattr("vcc.qa.words.AT_ONCE", 2 * BLOCK)
    assert best_matches(ids, questions, 1000) == whole
    assert [best_matches(ids, [question], 1000)[0] for question in questions] == whole  # whatever else is asked


def test_nothing_matches_and_nothing_is_wanted() -> None:
    assert best_matches(np.arange(200), [np.array([999])], 5) == [[]]
    assert best_matches(np.arange(200), [np.array([3])], 0) == [[]]
