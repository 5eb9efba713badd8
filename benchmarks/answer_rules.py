"""What the rules of `documents/candidates.py` do to SQuAD 2.0's answers: the spans as found, and the answers shown.

    python -m benchmarks.answer_rules --data ../shared/data --questions 600

A fixed sample of the second half of the articles, none of which the bundled model was trained on. F1 and EM of the best
answer to answerable questions; the official EM and F1 of both kinds, each half of the articles at the lead over "no
answer" chosen on the other; and what a user sees at the model's threshold. An answer is right at an F1 of 0.5.
"""

import argparse
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.verify import document_of
from vcc.data.example import Example
from vcc.documents.asker import place
from vcc.documents.candidates import candidates
from vcc.documents.document import Document
from vcc.documents.index import Index
from vcc.tasks.metrics import best_of, exact, word_f1
from vcc.tasks.squad import Squad, best_threshold


class Said(NamedTuple):
    """The best answer to a question, its lead over "no answer" and its score."""

    text: str
    lead: float
    score: float


def as_found(document: Document, index: Index, question: str) -> tuple[Said, Said]:
    """The best span as it was found, and the answer by the rules."""
    asker = document.asker()
    [found] = asker.find(index, [question]).found
    edges, leads = [place(index, span) for span in found], [span.score for span in found]
    calibration = asker.qa.settings.calibration
    plain = Said(document.text[slice(*edges[0])], leads[0], calibration.probabilities(leads, index.tokens)[0])
    ruled = candidates(question, document.text, edges, leads)
    scores = calibration.probabilities([one.lead for one in ruled], index.tokens)
    return plain, Said(document.text[slice(*ruled[0].edges)], ruled[0].lead, scores[0])


def report(name: str, said: list[Said], examples: list[Example], threshold: float) -> str:
    """One row of the table."""

    def each(score: Callable[[str, str], float]) -> np.ndarray:
        return np.array([best_of(score, one.text, e.answers) for one, e in zip(said, examples, strict=True)])

    f1, em, leads = each(word_f1), each(exact), np.array([one.lead for one in said])
    answerable = np.array([bool(example.answers) for example in examples])
    groups = {group: i % 2 for i, group in enumerate(dict.fromkeys(example.group for example in examples))}
    half = np.array([groups[example.group] for example in examples])
    gains = np.where(answerable, f1, -1.0)
    needed = np.array([best_threshold(leads[half != own], gains[half != own]) for own in (0, 1)])[half]
    official = [np.where(leads > needed, np.where(answerable, one, 0.0), ~answerable).mean() for one in (em, f1)]
    shown = np.array([one.score >= threshold for one in said])
    right = f1[shown & answerable] >= 0.5
    numbers = (em[answerable].mean(), f1[answerable].mean(), *official, shown[answerable].mean(), right.mean())
    cells = (f"{100 * number:.1f}" for number in (*numbers, shown[~answerable].mean()))
    return f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=600)
    given = parser.parse_args()
    examples = list(Squad(half="second").load("validation", str(given.data)))
    random.Random(1).shuffle(examples)
    examples = examples[: given.questions]
    plain, ruled, threshold = [], [], 0.5
    for example in examples:
        document = document_of("paragraph", example.document)
        found = document.with_index(None, partial(as_found, document, question=example.question))
        threshold = document.asker().qa.settings.threshold
        plain.append(found[0])
        ruled.append(found[1])
    print("| | answerable EM | F1 | official EM | F1 | answered | of these right | unanswerable, shown |")
    print("|---" * 8 + "|")
    print(report("spans as found", plain, examples, threshold))
    print(report("with the rules", ruled, examples, threshold), flush=True)


if __name__ == "__main__":
    main()
