"""Documents by the words of a question, against BM25's formula word by word."""

import math
from pathlib import Path

import numpy as np

from vcc.fleet.words import LENGTH, SATURATION, WordTable

DOCUMENTS = [np.array(ids) for ids in ([1, 1, 2], [2, 3, 3, 3, 4, 5], [5, 5], [2])]


def score(document: np.ndarray, question: set[int]) -> float:
    mean = sum(map(len, DOCUMENTS)) / len(DOCUMENTS)
    total = 0.0
    for token in question:
        holding = sum(token in other for other in DOCUMENTS)
        times = int((document == token).sum())
        rarity = math.log(1 + (len(DOCUMENTS) - holding + 0.5) / (holding + 0.5))
        total += rarity * times * (SATURATION + 1) / (times + SATURATION * (1 - LENGTH + LENGTH * len(document) / mean))
    return total


def test_the_order_is_that_of_the_formula(tmp_path: Path) -> None:
    WordTable.of(iter(DOCUMENTS)).save(tmp_path / "words")
    table = WordTable.load(tmp_path / "words")
    for question in ({1}, {2}, {3, 5}, {2, 5}, {1, 2, 3, 4, 5}, {9}):
        expected = {n: s for n, one in enumerate(DOCUMENTS) if (s := score(one, question)) > 0}
        found = table.best(np.array([*question, *question]), 10)
        assert found == sorted(expected, key=lambda n: -expected[n]), question
    assert table.best(np.array([2]), 1) == [3]
