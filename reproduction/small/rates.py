"""A search over learning rates, the same for all models: each learns each task with every rate, for the same time.

One half of the test questions chooses the rate, and the other half is reported. All questions on a document are in one
half. Other seeds learn with the chosen rate alone.
"""

from collections.abc import Sequence

from vcc.data.example import Example, Prediction
from vcc.errors import DataError
from vcc.tasks.task import Task

CHOOSES, REPORTED = "chooses", "reported"  # the halves
HALVES = "halves"  # of a file of scores


def halves(examples: Sequence[Example]) -> dict[str, list[int]]:
    """The questions of each half: every other document, in the order of the sample."""
    documents = list(dict.fromkeys(one.group or one.id for one in examples))
    if len(documents) < 2:
        raise DataError(f"{len(documents)} documents are tested: --rates needs two, one to choose a rate by")
    chooses = set(documents[::2])
    found: dict[str, list[int]] = {CHOOSES: [], REPORTED: []}
    for i, one in enumerate(examples):
        found[CHOOSES if (one.group or one.id) in chooses else REPORTED].append(i)
    return found


def scores(task: Task, predictions: Sequence[Prediction], examples: Sequence[Example]) -> dict[str, dict[str, float]]:
    """The metrics of each half."""
    return {
        half: task.metrics([predictions[i] for i in chosen], [examples[i] for i in chosen])
        for half, chosen in halves(examples).items()
    }


def best(found: dict[float, dict[str, dict[str, float]]], metric: str) -> float:
    """The rate that is best on the half that chooses; the first of equal ones."""
    return max(found, key=lambda rate: found[rate][CHOOSES][metric])
