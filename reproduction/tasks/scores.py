"""Scores of predictions with 95% intervals over documents."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reproduction.tasks.packed import LongItem
from reproduction.tasks.specs import Kind
from vcc.data.example import Example
from vcc.tasks.metrics import Scores, f1_scores, mean_scores


def scores(items: Sequence[LongItem], said: Sequence[NDArray[np.int64]], labels: Sequence[str], kind: Kind) -> Scores:
    """accuracy and macro F1 of classes, accuracy of choices, token F1 (over all tags together) and macro F1 of tags."""
    documents = [Example(str(i), "", "", group=item.group) for i, item in enumerate(items)]
    if kind == "tag":
        names = range(1, 1 + len(labels))
        truth: Sequence[NDArray[np.int64]] = [item.tags for item in items if item.tags is not None]
        return f1_scores(*counts(truth, said, names), documents, overall="token_f1")
    truth = [np.array([item.label]) for item in items]
    right = [float(one[0] == item.label) for one, item in zip(said, items, strict=True)]
    found = mean_scores({"accuracy": right}, documents)
    return found if kind == "choice" else found | f1_scores(*counts(truth, said, range(len(labels))), documents)


def counts(
    truth: Sequence[NDArray[np.int64]], said: Sequence[NDArray[np.int64]], labels: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Hits, predictions and references of each label in each item, each (items, labels)."""
    numbers = np.array(labels)
    pairs = list(zip(truth, said, strict=True))
    hits = [((a[:, None] == numbers) & (b[:, None] == numbers)).sum(0) for a, b in pairs]
    predicted = [(b[:, None] == numbers).sum(0) for _, b in pairs]
    references = [(a[:, None] == numbers).sum(0) for a, _ in pairs]
    return np.array(hits, dtype=float), np.array(predicted, dtype=float), np.array(references, dtype=float)
