"""Fit the probability that a question's best span is right, on the results of `find` on validation documents.

python -m shipped_model.calibrate --prepared prepared --found results/found-twice.jsonl.xz --model results/twice

The best span is the one that the product shows, after the rules of `vcc.documents.candidates`: a fit must see the
numbers that it is used on. It is right if its F1 with an answer is at least 0.5. Every set has the same weight, and
unanswerable questions at most a fifth of a set's. Contracts have their own calibration. What a text of another kind can
expect is shown by sets left out in turn: their mean score, said by a fit to all others, against the share that is
right.
"""

import json
import lzma
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import AutoTokenizer

from shipped_model.score import Texts, load_texts, spans_in_text
from vcc.commands.options import call
from vcc.documents.candidates import candidates
from vcc.files import write_whole
from vcc.qa.calibration import FARTHEST, Calibration, doublings
from vcc.qa.settings import KEY, QaSettings
from vcc.tasks.metrics import best_of, word_f1

BINS = 10
RIGHT = 0.5  # F1
CLAUSES = "cuad"
TESTS = ("cuad_test", "hidden-0")  # not fitted: a published test, and questions of another set
HIDDEN = "hidden"  # paragraphs hidden in documents of any length are one set
UNANSWERABLE = 0.2  # share of the questions of a set, at most, when it is judged
FITTED_UNANSWERABLE = 0.1  # share of all questions in the fit
THRESHOLDS = (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7)
THRESHOLD = 0.5  # that is kept: an answer is shown as sure if it is more likely right than wrong


@dataclass(frozen=True)
class Judged:
    """The best span of one question."""

    set: str
    document: str
    lead: float
    margin: float
    right: bool
    answerable: bool
    tokens: int = 64  # of the text


@dataclass(frozen=True)
class CalibrateOptions:
    """Inputs."""

    prepared: Annotated[Path, "output folder of `prepare`"]
    found: Annotated[Path, "results of `train`: found-NAME.jsonl.xz"]
    model: Annotated[Path | None, "folder of the model; the settings in its config.json are replaced"] = None


def calibrate(options: CalibrateOptions) -> None:
    """Print the calibrations, how they hold on sets left out, and coverage and precision; write them to a model."""
    texts, tokenizer = load_texts(options.prepared), AutoTokenizer.from_pretrained(options.prepared)
    judged = list(judge(options.found, texts, tokenizer))
    questions = [one for one in judged if one.set != CLAUSES]
    clauses = [one for one in judged if one.set == CLAUSES]
    fitted = fit(questions)
    print(
        f"questions: {fitted}, calibration error {100 * unseen_error(questions):.1f} points, {len(questions)} questions"
    )
    print_left_out(left_out(questions))
    squad = [one for one in questions if one.set == "squad" and one.answerable]
    for value in reversed(THRESHOLDS):
        all_sets, own = at_threshold(questions, fitted, value), at_threshold(squad, fitted, value)
        print(f"  at {value}: all sets {shares(all_sets)}; SQuAD, answerable {shares(own)}")
    of_clauses = None
    if clauses:
        of_clauses = fit(clauses, clauses=True)
        print(f"clauses: {of_clauses}, calibration error {100 * unseen_error(clauses, clauses=True):.1f} points")
    if options.model is not None:
        keep(options.model, fitted, of_clauses, THRESHOLD)
        print(f"written to {options.model / 'config.json'}, threshold {THRESHOLD}")


def shares(found: tuple[float, float]) -> str:
    return f"coverage {found[0]:.0%}, precision {found[1]:.0%}"


def keep(model: Path, fitted: Calibration, of_clauses: Calibration | None, threshold: float) -> None:
    """Replace the calibrations and the threshold in a model's configuration."""
    path = model / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    known = config.get(KEY) or {}
    new = {"calibration": vars(fitted), "threshold": threshold}
    new |= {} if of_clauses is None else {"clause_calibration": vars(of_clauses)}
    QaSettings.from_dict({**known, **new})  # raises if they are invalid
    config[KEY] = {**known, **new}
    write_whole(path, (json.dumps(config, indent=2) + "\n").encode())


def judge(path: Path, texts: Texts, tokenizer: object) -> Iterator[Judged]:
    """The best span of each question, as the product shows it."""
    with lzma.open(path, "rt") as file:
        for line in map(json.loads, file):
            name, _, length = line["set"].partition("-")
            if line["set"] in TESTS or not line["found"]:
                continue
            question, text, unit = texts["squad" if name == HIDDEN else name][line["question"]]
            leads = [score - none for score, _, _, none in line["found"]]
            whole, edges = spans_in_text(line, text, unit, tokenizer)
            if name != CLAUSES:  # they are shown as they were found
                edges, leads = map(list, zip(*candidates(question["question"], whole, edges, leads), strict=True))
            f1 = best_of(word_f1, whole[slice(*edges[0])], question["answers"]) if question["answers"] else 0.0
            margin = max(-FARTHEST, min(leads[0] - leads[1] if len(leads) > 1 else leads[0], FARTHEST))
            tokens = int(length) if name == HIDDEN else len(unit.ids)
            yield Judged(name, text["group"], leads[0], margin, f1 >= RIGHT, bool(question["answers"]), tokens)


def weights(judged: Sequence[Judged], clauses: bool = False) -> Tensor:
    """Weights that give every set the same total, and its unanswerable questions at most their share of it. Clauses
    are all asked of every contract, so they count as they are."""
    number: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for one in judged:
        number[one.set][one.answerable] += 1

    def weight(one: Judged) -> float:
        none, some = number[one.set]
        natural = none / (none + some)
        share = min(natural, UNANSWERABLE) if some and not clauses else natural
        return (1 - share) / some if one.answerable else share / none

    return torch.tensor([weight(one) for one in judged], dtype=torch.float64)


def weights_of_fit(judged: Sequence[Judged]) -> Tensor:
    """Weights that give every set the same total, and unanswerable questions their share of everything: few sets have
    any, but people ask them of all texts."""
    number: dict[tuple[str, bool], int] = defaultdict(int)
    for one in judged:
        number[one.set, one.answerable] += 1
    sets = {kind: sum(1 for _, known in number if known == kind) for kind in (False, True)}
    share = {False: FITTED_UNANSWERABLE if sets[False] else 0.0}
    share[True] = 1 - share[False]
    each = [share[one.answerable] / sets[one.answerable] / number[one.set, one.answerable] for one in judged]
    return torch.tensor(each, dtype=torch.float64)


def fit(judged: Sequence[Judged], clauses: bool = False) -> Calibration:
    """Logistic regression on lead, margin and, except for clauses, the length of the text."""
    features = torch.tensor(
        [[one.lead, one.margin, 0.0 if clauses else doublings(one.tokens), 1.0] for one in judged], dtype=torch.float64
    )
    right = torch.tensor([float(one.right) for one in judged], dtype=torch.float64)
    weight, scale = (
        weights(judged, clauses) if clauses else weights_of_fit(judged),
        torch.tensor([10.0, 10.0, 2.0, 1.0], dtype=torch.float64),
    )  # of similar magnitude
    found = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([found], max_iter=500, line_search_fn="strong_wolfe")

    def cost() -> Tensor:
        optimizer.zero_grad()
        losses = binary_cross_entropy_with_logits((features / scale) @ found, right, reduction="none")
        loss = (weight * losses).sum() / weight.sum()
        loss.backward()
        return loss

    optimizer.step(cost)
    lead, margin, size, offset = (found.detach() / scale).tolist()
    return Calibration(round(max(lead, 0.0), 3), round(max(margin, 0.0), 3), round(offset, 2), round(size, 3))


def chances(judged: Sequence[Judged], fitted: Calibration) -> Tensor:
    said = [fitted.probabilities([one.lead, one.lead - one.margin], one.tokens)[0] for one in judged]
    return torch.tensor(said, dtype=torch.float64)


@dataclass(frozen=True)
class LeftOut:
    """A set as a fit to all others sees it: the mean score, and the share that is right."""

    set: str
    questions: int
    said: float
    right: float

    @property
    def off(self) -> float:
        return abs(self.said - self.right)


def left_out(judged: Sequence[Judged]) -> list[LeftOut]:
    """Every set, scored by a fit to the others."""
    found = []
    for name in sorted({one.set for one in judged}):
        own = [one for one in judged if one.set == name]
        others = [one for one in judged if one.set != name]
        weight = weights(own) / weights(own).sum()
        right = torch.tensor([float(one.right) for one in own], dtype=torch.float64)
        said = chances(own, fit(others))
        found.append(LeftOut(name, len(own), float(weight @ said), float(weight @ right)))
    return found


def print_left_out(found: Sequence[LeftOut]) -> None:
    print("| set left out | questions | mean score | right | off by |\n|---|---|---|---|---|")
    for one in found:
        print(f"| {one.set} | {one.questions} | {one.said:.0%} | {one.right:.0%} | {100 * one.off:.1f} |")
    sets = [one for one in found if one.set != HIDDEN]  # made by us
    worst = max(sets, key=lambda one: one.off)
    print(f"without {HIDDEN}: {100 * mean([one.off for one in sets]):.1f} on the mean, {100 * worst.off:.1f} at worst")


def unseen_error(judged: Sequence[Judged], clauses: bool = False) -> float:
    """The expected calibration error over ten bins: each half of the documents is judged by a fit to the other."""
    documents = {name: i % 2 for i, name in enumerate(sorted({one.document for one in judged}))}
    halves = [[one for one in judged if documents[one.document] == half] for half in (0, 1)]
    tested = [*halves[0], *halves[1]]
    fits = [fit(half, clauses) for half in halves]
    said = torch.cat([chances(halves[0], fits[1]), chances(halves[1], fits[0])])
    weight, right = weights(tested, clauses), torch.tensor([float(one.right) for one in tested])
    bins = (said * BINS).long().clamp(max=BINS - 1)
    gaps = [(weight * (said - right))[bins == i].sum().abs() for i in range(BINS)]
    return float(sum(gaps) / weight.sum())


def at_threshold(judged: Sequence[Judged], fitted: Calibration, threshold: float) -> tuple[float, float]:
    """Coverage (the share of answerable questions answered) and precision (the share of answers right), means over the
    sets."""
    covered, rights = [], []
    for name in sorted({one.set for one in judged}):
        own = [one for one in judged if one.set == name]
        shown = (chances(own, fitted) >= threshold).tolist()
        covered.append(mean([yes for yes, one in zip(shown, own, strict=True) if one.answerable]))
        rights.append(mean([one.right for yes, one in zip(shown, own, strict=True) if yes]))
    return mean(covered), mean(rights)


def mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)


if __name__ == "__main__":
    call(calibrate, sys.argv[1:], "python -m shipped_model.calibrate")
