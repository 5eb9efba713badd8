"""Fit what the calibration of clauses leaves open: how likely a clause is in general, and answers after the first.

    python -m reproduction.cuad --data DATA --out found --split validation
    python -m shipped_model.clause_offsets --data DATA --predictions found/predictions.json --model FOLDER

`calibrate` fits the best span of a question, for all clauses alike. But CUAD ranks all answers to all clauses by one
score. So each clause gets an offset, with a penalty on its square, and further answers lose in proportion to how far
they are behind the first. Both are fitted on all answers to the validation contracts; an answer is right by CUAD's own
rule.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from reproduction.cuad_split import contracts
from vcc.commands.options import call
from vcc.data.example import Example, Prediction
from vcc.errors import DataError
from vcc.files import write_whole
from vcc.qa.calibration import logit, sigmoid
from vcc.qa.clauses import CLAUSES
from vcc.qa.settings import KEY, QaSettings
from vcc.tasks.metrics import clause_scores, jaccard

PENALTY = 10.0  # on the square of a clause's offset, in units of one answer's loss
FOLDS = 4  # of contracts
CATEGORIES = [clause.category for clause in CLAUSES]


@dataclass(frozen=True)
class Ranked:
    """An answer to a clause question."""

    example: int
    contract: str
    category: str
    text: str
    logit: float  # of the calibration alone
    behind: float  # the logit of the first answer minus this one's
    right: bool


@dataclass(frozen=True)
class Fitted:
    """What is added to the logit of an answer."""

    further: float
    offsets: dict[str, float]

    def added(self, one: Ranked) -> float:
        return self.offsets.get(one.category, 0.0) - self.further * one.behind


@dataclass(frozen=True)
class ClauseOffsetOptions:
    """Inputs."""

    data: Annotated[Path, "folder of the data sets"]
    predictions: Annotated[Path, "of the validation contracts, by the model with its settings of today"]
    model: Annotated[Path, "folder of the model; the settings in its config.json are replaced"]


def fit_clauses(options: ClauseOffsetOptions) -> None:
    """Print what it changes on contracts that were left out, fit on all of them and write it to the model."""
    examples = contracts("validation", str(options.data))
    path = options.model / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    settings = QaSettings.from_dict(config[KEY])
    own = settings.clause_calibration
    if own is None:
        raise DataError(f"{path} has no clause_calibration: run `shipped_model.calibrate` first")
    known = Fitted(own.further, dict(settings.clause_offsets))
    answers = ranked_answers(examples, json.loads(options.predictions.read_text(encoding="utf-8")), known)
    print("as it was:", told(examples, answers, known), "with nothing:", told(examples, answers, Fitted(0.0, {})))
    print("on contracts left out:", told_left_out(examples, answers))
    found = fit(answers)
    config[KEY]["clause_calibration"]["further"] = found.further
    config[KEY]["clause_offsets"] = found.offsets
    QaSettings.from_dict(config[KEY])  # raises if they are invalid
    write_whole(path, (json.dumps(config, indent=2) + "\n").encode())
    print(f"written to {path}: {found}")


def ranked_answers(
    examples: Sequence[Example], predictions: dict[str, list[dict[str, float | str]]], known: Fitted
) -> list[Ranked]:
    """All answers, best first within a question, with the logits they had before `known` was added."""
    missing = [example.id for example in examples if example.id not in predictions]
    if missing:
        raise DataError(f"{len(missing)} of {len(examples)} questions have no predictions, the first is {missing[0]}")
    found = []
    for i, example in enumerate(examples):
        category = str(example.meta["category"])
        some = sorted(predictions[example.id], key=lambda one: -float(one["probability"]))
        logits = [logit(float(one["probability"])) - known.offsets.get(category, 0.0) for one in some]
        for one, own in zip(some, logits, strict=True):
            text = str(one["text"])
            right = any(
                jaccard(answer, text) >= 0.5 or (category == "Parties" and answer in text) for answer in example.answers
            )
            behind = (logits[0] - own) / (1 + known.further)
            found.append(Ranked(i, str(example.group), category, text, logits[0] - behind, behind, right))
    return found


def fit(answers: Sequence[Ranked]) -> Fitted:
    """Logistic regression with the logit itself as it is."""
    said, behind, right = torch.tensor(
        [(one.logit, one.behind, float(one.right)) for one in answers], dtype=torch.float64
    ).T
    category = torch.tensor([CATEGORIES.index(one.category) for one in answers])
    weight = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    offsets = torch.zeros(len(CATEGORIES), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, offsets], max_iter=500, line_search_fn="strong_wolfe")

    def cost() -> Tensor:
        optimizer.zero_grad()
        new = said - weight * behind + offsets[category]
        loss = binary_cross_entropy_with_logits(new, right, reduction="sum") + PENALTY * offsets.square().sum()
        loss.backward()
        return loss

    optimizer.step(cost)
    each = {name: round(value, 2) for name, value in zip(CATEGORIES, offsets.tolist(), strict=True)}
    return Fitted(round(max(weight.item(), 0.0), 3), each)


def told(examples: Sequence[Example], answers: Sequence[Ranked], fitted: Fitted) -> str:
    return scores(examples, answers, [one.logit + fitted.added(one) for one in answers])


def told_left_out(examples: Sequence[Example], answers: Sequence[Ranked]) -> str:
    """Each part of the contracts with what is fitted to the others."""
    names = sorted({one.contract for one in answers})
    part = {name: i % FOLDS for i, name in enumerate(names)}
    fits = [fit([one for one in answers if part[one.contract] != fold]) for fold in range(FOLDS)]
    return scores(examples, answers, [one.logit + fits[part[one.contract]].added(one) for one in answers])


def scores(examples: Sequence[Example], answers: Sequence[Ranked], logits: Sequence[float]) -> str:
    """CUAD's scores of answers with these logits."""
    spans: list[list[tuple[str, float]]] = [[] for _ in examples]
    for one, own in zip(answers, logits, strict=True):
        spans[one.example].append((one.text, sigmoid(own)))
    predictions = [Prediction(e.id, spans=tuple(some)) for e, some in zip(examples, spans, strict=True)]
    found = clause_scores(predictions, examples)
    return ", ".join(f"{name} {found[name]:.1f}" for name in ("aupr", "p80", "f1"))


if __name__ == "__main__":
    call(fit_clauses, sys.argv[1:], "python -m shipped_model.clause_offsets")
