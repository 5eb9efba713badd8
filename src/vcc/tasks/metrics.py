"""The published metrics, each a few lines, all as percentages with a 95% interval over documents.

| metric | follows |
|---|---|
| em, f1 | SQuAD's script (SCROLLS: the same): no case, punctuation or articles; the best of several references |
| rouge1, rouge2, rougeL | rouge-score with stemming, the best of several references; rougeL is the summary-level one |
| | (rougeLsum, one line per sentence): only it gives values like the paper's (54.0 / 25.2 / 51.4 on GovReport) |
| scrolls | SCROLLS' own score: no stemming, plain rougeL, the geometric mean of the three |
| aupr, p80, f1 of CUAD | its script: a span is right if its words' Jaccard overlap with an answer is at least 0.5 |
| accuracy | the share of right choices |
| macro_f1 | the mean over labels of 2 x hits / (predictions + references); labels without references do not count |
"""

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcc.data.example import Example, Prediction

Floats = NDArray[np.float64]
Scores = dict[str, float]
DRAWS = 1000  # of the bootstrap


# --- confidence intervals --------------------------------------------------------------------------------------------


def mean_scores(values: Mapping[str, Sequence[float]], examples: Sequence[Example]) -> Scores:
    """The mean of each list of per-example values in 0..1, and its interval over groups, as percentages."""
    weights, of = _draws(examples)
    counts = np.bincount(of, minlength=weights.shape[1])
    scores: Scores = {}
    for name, column in values.items():
        sums = np.bincount(of, weights=np.asarray(column, dtype=float), minlength=weights.shape[1])
        drawn = (weights @ sums) / (weights @ counts)  # (DRAWS,)
        scores |= _with_interval(name, float(np.mean(column)), drawn, len(counts))
    return scores


def _draws(examples: Sequence[Example]) -> tuple[Floats, NDArray[np.intp]]:
    """How often each group is drawn in each of DRAWS resamplings (DRAWS, groups), and each example's group."""
    names = [example.group or example.id for example in examples]
    groups, of = np.unique(names, return_inverse=True)
    weights = np.random.default_rng(0).multinomial(len(groups), np.full(len(groups), 1 / len(groups)), size=DRAWS)
    return weights.astype(float), of


def _with_interval(name: str, value: float, drawn: Floats, groups: int) -> Scores:
    if groups < 2:
        return {name: 100 * value}  # all draws are equal: an interval would suggest certainty
    low, high = np.percentile(drawn, (2.5, 97.5))
    return {name: 100 * value, f"{name}_low": 100 * float(low), f"{name}_high": 100 * float(high)}


def check_pairs(predictions: Sequence[Prediction], examples: Sequence[Example]) -> None:
    """Raise unless there is one prediction per example, in the same order."""
    if len(predictions) != len(examples) or not examples:
        raise ValueError(f"{len(predictions)} predictions for {len(examples)} examples: must be equal, and not 0")
    for prediction, example in zip(predictions, examples, strict=True):
        if prediction.id != example.id:
            raise ValueError(f"prediction {prediction.id!r} does not match example {example.id!r}: must be in order")


class NoReference(ValueError):
    """An example without a reference answer, as in a hidden test split: it can be answered but not scored."""


def _need_references(examples: Sequence[Example]) -> None:
    for example in examples:
        if not example.answers:
            raise NoReference(f"example {example.id!r} has no reference answer: a hidden test split cannot be scored")


# --- exact match and F1 ----------------------------------------------------------------------------------------------


def normalize(text: str) -> str:
    """SQuAD's normalisation: lower case, no punctuation, no articles, single spaces."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def exact(prediction: str, answer: str) -> float:
    return float(normalize(prediction) == normalize(answer))


def word_f1(prediction: str, answer: str) -> float:
    """Harmonic mean of the shares of common words; if one side has no words, 1 only if neither has."""
    ours, theirs = normalize(prediction).split(), normalize(answer).split()
    if not ours or not theirs:
        return float(ours == theirs)
    common = (Counter(ours) & Counter(theirs)).total()
    return 2 * common / (len(ours) + len(theirs))


def best_of(score: Callable[[str, str], float], prediction: str, answers: Sequence[str]) -> float:
    """The best over the references; without references the right answer is none ("")."""
    return max(score(prediction, answer) for answer in answers or ("",))


def answer_scores(predictions: Sequence[Prediction], examples: Sequence[Example], no_answer: bool = False) -> Scores:
    """em and f1. With `no_answer`, the right prediction for an example without answers is empty."""
    check_pairs(predictions, examples)
    if not no_answer:
        _need_references(examples)
    pairs = [(p.text, e.answers) for p, e in zip(predictions, examples, strict=True)]
    return mean_scores(
        {"em": [best_of(exact, *pair) for pair in pairs], "f1": [best_of(word_f1, *pair) for pair in pairs]}, examples
    )


def auc(values: Sequence[float], labels: Sequence[bool]) -> float:
    """AUC in percent: the probability that an example with its label set ranks above one without; NaN if all are
    alike. Ties count half."""
    right, found = np.array(labels, dtype=bool), np.array(values, dtype=float)
    if right.all() or not right.any():
        return math.nan
    others = np.sort(found[~right])
    below = (np.searchsorted(others, found[right]) + np.searchsorted(others, found[right], "right")) / 2
    return 100 * float(below.mean() / len(others))


def choice_scores(predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
    """accuracy if the predictions are choices; always em and f1 of their texts."""
    scores = answer_scores(predictions, examples)
    if all(p.choice is not None for p in predictions):
        right = [float(p.choice == e.label) for p, e in zip(predictions, examples, strict=True)]
        scores |= mean_scores({"accuracy": right}, examples)
    return scores


def exact_by(name: str, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
    """em at each value of a number in `meta`, rounded to one decimal: `em@depth=0.5`."""
    rows = sorted(
        (round(float(e.meta[name]), 1), best_of(exact, p.text, e.answers))
        for p, e in zip(predictions, examples, strict=True)
    )
    return {
        f"em@{name}={value:g}": 100 * float(np.mean([score for _, score in group]))
        for value, group in groupby(rows, key=lambda row: row[0])
    }


def f1_scores(
    hits: Floats, predicted: Floats, references: Floats, examples: Sequence[Example], overall: str = ""
) -> Scores:
    """Macro F1 from counts per example and label, each (examples, labels), over labels with references.

    `overall` names the F1 of all labels together, if that is wanted too.
    """
    weights, of = _draws(examples)
    groups = weights.shape[1]
    counted = [
        np.stack([np.bincount(of, column, groups) for column in one.T], 1) for one in (hits, predicted, references)
    ]
    whole = _f1s(*(one.sum(0)[None] for one in counted))  # (1, 2)
    drawn = _f1s(*(weights @ one for one in counted))  # (DRAWS, 2)
    names = ["macro_f1", *([overall] if overall else [])]
    scores: Scores = {}
    for i, name in enumerate(names):
        scores |= _with_interval(name, float(whole[0, i]), drawn[:, i], groups)
    return scores


def _f1s(hits: Floats, predicted: Floats, references: Floats) -> Floats:
    """Counts (N, labels) -> (N, 2): macro F1 over labels with references, and the F1 of all labels together."""
    seen = references > 0
    each = 2 * hits / np.maximum(predicted + references, 1)
    macro = (each * seen).sum(1) / np.maximum(seen.sum(1), 1)
    total = 2 * hits.sum(1) / np.maximum(predicted.sum(1) + references.sum(1), 1)
    return np.stack([macro, total], axis=1)


# --- ROUGE -----------------------------------------------------------------------------------------------------------


def summary_scores(predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
    """rouge1, rouge2, rougeL with intervals, and SCROLLS' score of the same texts."""
    check_pairs(predictions, examples)
    _need_references(examples)
    stemmed = [rouge(p.text, e.answers, stem=True) for p, e in zip(predictions, examples, strict=True)]
    plain = [rouge(p.text, e.answers, stem=False) for p, e in zip(predictions, examples, strict=True)]
    scores = mean_scores(
        {
            "rouge1": [one["rouge1"] for one in stemmed],
            "rouge2": [one["rouge2"] for one in stemmed],
            "rougeL": [one["rougeLsum"] for one in stemmed],
        },
        examples,
    )
    means = [np.mean([one[name] for one in plain]) for name in ("rouge1", "rouge2", "rougeL")]
    return scores | {"scrolls": 100 * float(np.prod(means) ** (1 / 3))}


def rouge(prediction: str, answers: Sequence[str], stem: bool) -> dict[str, float]:
    """F-measures of rouge1, rouge2, rougeL and rougeLsum, each the best over the references."""
    each = [_scorer(stem).score(sentence_lines(answer), sentence_lines(prediction)) for answer in answers]
    return {name: max(one[name].fmeasure for one in each) for name in each[0]}


@cache
def _scorer(stem: bool) -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=stem)


def sentence_lines(text: str) -> str:
    """One line per sentence, for rougeLsum. Our own rule (. ! or ? and a space): NLTK's needs a download."""
    return "\n".join(re.split(r"(?<=[.!?])\s+", text.strip()))


# --- CUAD ------------------------------------------------------------------------------------------------------------

_THRESHOLDS = np.array([*(round(0.99 - 0.01 * i, 2) for i in range(99)), 0.001, 0.0])  # CUAD's, (T,)


def jaccard(ours: str, theirs: str) -> float:
    """Common words over all words; . , ; : are ignored and / separates words, as in CUAD's script."""
    a, b = (set(re.sub("[.,;:]", "", text).lower().replace("/", " ").split()) for text in (ours, theirs))
    return len(a & b) / len(a | b) if a | b else 0.0


def clause_scores(predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
    """CUAD's aupr, p80 and p90 (precision at 80% and 90% recall), and the best f1 on the curve.

    An answer is found at a threshold if a span above it matches; a span that matches no answer is a false positive.
    """
    check_pairs(predictions, examples)
    weights, of = _draws(examples)
    hits, alarms = np.zeros((2, weights.shape[1], len(_THRESHOLDS)))  # (groups, T)
    answers = np.bincount(of, [len(e.answers) for e in examples], weights.shape[1])  # (groups,)
    for prediction, example, g in zip(predictions, examples, of, strict=True):
        spans = {text: chance for text, chance in prediction.spans if text}
        part_ok = "Parties" in example.id  # the script's exception: a longer span that holds a party's name is right
        matches = {
            text: [jaccard(answer, text) >= 0.5 or (part_ok and answer in text) for answer in example.answers]
            for text in spans
        }
        for i in range(len(example.answers)):
            best = max((chance for text, chance in spans.items() if matches[text][i]), default=-1.0)
            hits[g] += best > _THRESHOLDS
        for text, chance in spans.items():
            if not any(matches[text]):
                alarms[g] += chance > _THRESHOLDS
    whole = _curve_scores(hits.sum(0), alarms.sum(0), answers.sum())
    drawn = [_curve_scores(*counts) for counts in zip(weights @ hits, weights @ alarms, weights @ answers, strict=True)]
    scores: Scores = {}
    for name, value in whole.items():
        scores |= _with_interval(name, value, np.array([one[name] for one in drawn]), len(answers))
    return scores


def _curve_scores(hits: Floats, alarms: Floats, answers: float) -> Scores:
    """From counts at falling thresholds (T,) to the scores of the curve. No answer anywhere: all 0."""
    if answers == 0:
        return dict.fromkeys(("aupr", "p80", "p90", "f1"), 0.0)
    recall = np.concatenate([[0.0], hits / answers])
    said = hits + alarms
    precision = np.concatenate([[1.0], np.divide(hits, said, out=np.zeros_like(hits), where=said > 0)])
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    best = np.maximum.accumulate(precision[::-1])[::-1]  # at this recall or a higher one
    area = float(((best[1:] + best[:-1]) / 2 * np.diff(recall)).sum())
    return {
        "aupr": area,
        "p80": _precision_at(0.8, best, recall),
        "p90": _precision_at(0.9, best, recall),
        "f1": float(f1.max()),
    }


def _precision_at(wanted: float, precision: Floats, recall: Floats) -> float:
    reached = np.flatnonzero(recall >= wanted)
    return float(precision[reached[0]]) if len(reached) else 0.0
