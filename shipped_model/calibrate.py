"""Fit the probability that a question's best span is right, on the results of `find` on validation documents.

python -m shipped_model.calibrate --prepared prepared --found results/found-twice.jsonl.xz

A span is right if its F1 with an answer is at least 0.5. Every set has the same weight; contracts have their own
calibration. The expected calibration error over ten bins is cross-validated: each half of the documents is judged by a
fit to the other.
"""

import json
import lzma
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from shipped_model.score import Texts, load_texts, slice_of
from vcc.commands.options import call
from vcc.qa.calibration import FARTHEST, Calibration
from vcc.tasks.metrics import best_of, word_f1

BINS = 10
RIGHT = 0.5  # F1
CLAUSES = "cuad"


@dataclass(frozen=True)
class Judged:
    """The best span of one question."""

    set: str
    document: str
    lead: float
    margin: float
    right: bool
    answerable: bool


@dataclass(frozen=True)
class CalibrateOptions:
    """Inputs."""

    prepared: Annotated[Path, "output folder of `prepare`"]
    found: Annotated[Path, "results of `train`: found-NAME.jsonl.xz"]


def calibrate(options: CalibrateOptions) -> None:
    """Print the calibrations for plain questions and for clauses, their errors, and coverage and precision."""
    judged = list(judge(options.found, load_texts(options.prepared)))
    for name, some in (
        ("questions", [one for one in judged if one.set != CLAUSES]),
        ("clauses", [one for one in judged if one.set == CLAUSES]),
    ):
        fitted = fit(some)
        print(f"{name}: {fitted}, calibration error {100 * unseen_error(some):.1f} points, {len(some)} questions")
        for threshold in (0.2, 0.3, 0.4, 0.5, 0.6):
            answered, right = at_threshold(some, fitted, threshold)
            print(f"  at {threshold}: coverage {answered:.0%}, precision {right:.0%}")


def judge(path: Path, texts: Texts) -> Iterator[Judged]:
    with lzma.open(path, "rt") as file:
        for line in map(json.loads, file):
            if line["set"].startswith("hidden") or not line["found"]:
                continue
            question, text, _ = texts[line["set"]][line["question"]]
            leads = sorted((score - none for score, _, _, none in line["found"]), reverse=True)
            _, first, last, _ = max(line["found"], key=lambda span: span[0] - span[3])
            f1 = best_of(word_f1, slice_of(text, first, last), question["answers"]) if question["answers"] else 0.0
            margin = min(leads[0] - leads[1], FARTHEST) if len(leads) > 1 else FARTHEST
            yield Judged(line["set"], text["group"], leads[0], margin, f1 >= RIGHT, bool(question["answers"]))


def weights(judged: Sequence[Judged]) -> Tensor:
    """Weights that give every set the same total."""
    number = Counter(one.set for one in judged)
    return torch.tensor([1 / number[one.set] for one in judged], dtype=torch.float64)


def fit(judged: Sequence[Judged]) -> Calibration:
    """Logistic regression on lead and margin."""
    features = torch.tensor([[one.lead, one.margin, 1.0] for one in judged], dtype=torch.float64)
    right = torch.tensor([float(one.right) for one in judged], dtype=torch.float64)
    weight, scale = weights(judged), torch.tensor([10.0, 10.0, 1.0], dtype=torch.float64)  # of similar magnitude
    found = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([found], max_iter=500, line_search_fn="strong_wolfe")

    def cost() -> Tensor:
        optimizer.zero_grad()
        losses = binary_cross_entropy_with_logits((features / scale) @ found, right, reduction="none")
        loss = (weight * losses).sum() / weight.sum()
        loss.backward()
        return loss

    optimizer.step(cost)  # type: ignore[no-untyped-call]
    lead, margin, offset = (found.detach() / scale).tolist()
    return Calibration(round(max(lead, 0.0), 3), round(max(margin, 0.0), 3), round(offset, 2))


def chances(judged: Sequence[Judged], fitted: Calibration) -> Tensor:
    return torch.tensor([fitted.probabilities([one.lead, one.lead - one.margin])[0] for one in judged])


def unseen_error(judged: Sequence[Judged]) -> float:
    """The expected calibration error over ten bins."""
    documents = {name: i % 2 for i, name in enumerate(sorted({one.document for one in judged}))}
    halves = [[one for one in judged if documents[one.document] == half] for half in (0, 1)]
    tested = [*halves[0], *halves[1]]
    said = torch.cat([chances(halves[0], fit(halves[1])), chances(halves[1], fit(halves[0]))])
    weight, right = weights(tested), torch.tensor([float(one.right) for one in tested])
    bins = (said * BINS).long().clamp(max=BINS - 1)
    gaps = [(weight * (said - right))[bins == i].sum().abs() for i in range(BINS)]
    return float(sum(gaps) / weight.sum())


def at_threshold(judged: Sequence[Judged], fitted: Calibration, threshold: float) -> tuple[float, float]:
    """Coverage (the share of answerable questions answered) and precision (the share of answers right), means over the
    sets."""
    shares, rights = [], []
    for name in sorted({one.set for one in judged}):
        own = [one for one in judged if one.set == name]
        shown = (chances(own, fitted) >= threshold).tolist()
        shares.append(mean([yes for yes, one in zip(shown, own, strict=True) if one.answerable]))
        rights.append(mean([one.right for yes, one in zip(shown, own, strict=True) if yes]))
    return mean(shares), mean(rights)


def mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)


if __name__ == "__main__":
    call(calibrate, sys.argv[1:], "python -m shipped_model.calibrate")
