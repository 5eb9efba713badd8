"""Rank texts by how well they match a question, without an index: for texts that are seen once."""

from collections.abc import Sequence

import numpy as np
import torch

from vcc.data.features import tokenize_texts
from vcc.documents.asker import Asker
from vcc.documents.finding import Catalogue, Ints, Sketch, element, question_vectors, vectors_of, weights_of, words_of
from vcc.qa.model import Progress, no_progress
from vcc.qa.words import best_matches

MOST_READ = 2048  # tokens of a text that the model reads; of a longer one, the passages that share the question's words
STRETCH = 128  # tokens of such a passage
IN_A_BATCH = 8192  # tokens
TOKENIZED = 16  # texts at once, by the tokenizer's own threads


def relevance(asker: Asker, question: str, texts: Sequence[str], progress: Progress = no_progress) -> list[float]:
    """Return how well each text matches a question: larger is better, and scores compare within one call."""
    return relevance_of_tokens(asker, question, tokens_of(asker, texts, progress), progress)


def tokens_of(asker: Asker, texts: Sequence[str], progress: Progress = no_progress) -> list[Ints]:
    """Return the tokens of each text; this needs no model."""
    found: list[Ints] = []
    for first in range(0, len(texts), TOKENIZED):
        progress(len(found), len(texts))
        found += tokenize_texts(texts[first : first + TOKENIZED], asker.tokenizer)
    return found


@torch.inference_mode()
def relevance_of_tokens(
    asker: Asker, question: str, ids: Sequence[Ints], progress: Progress = no_progress
) -> list[float]:
    """Return how well each text matches, by its tokens; `progress` is called between steps and may end the work."""
    asked, qa = asker.qa.ids_of(question), asker.qa
    there = [number for number, own in enumerate(ids) if len(own)]  # a text without a word matches nothing
    scores = [0.0] * len(ids)
    if not there:
        return scores
    read = {number: worth_reading(ids[number], asked) for number in there}
    sketches: dict[int, Sketch] = {}
    for batch in batches(read):
        progress(len(sketches), len(there))
        tree = qa.read([read[number] for number in batch])
        for at, number in enumerate(batch):
            sketches[number] = Sketch(*vectors_of(element(tree, at), qa.config.scales), *words_of(ids[number]))
    catalogue = Catalogue.of([sketches[number] for number in there])
    [vector] = question_vectors(asker, [question])
    for match in catalogue.find(vector, asked, len(there), weights_of(asker)):
        scores[there[match.number]] = match.score
    return scores


def worth_reading(ids: Ints, question: Ints) -> Ints:
    """Return all tokens of a short text; of a long one those around its best matches with the question's words."""
    if len(ids) <= MOST_READ:
        return ids
    chosen = np.zeros(len(ids), bool)
    for span in best_matches(ids, [question], MOST_READ // 64)[0]:
        first = max((span.first + span.last + 1 - STRETCH) // 2, 0)
        if chosen.sum() + STRETCH > MOST_READ:
            break
        chosen[first : first + STRETCH] = True
    return ids[chosen] if chosen.any() else ids[:MOST_READ]


def batches(read: dict[int, Ints]) -> list[list[int]]:
    """Return the numbers of texts of similar lengths together: a batch is as long as its longest text."""
    found: list[list[int]] = []
    for number in sorted(read, key=lambda number: (len(read[number]), number)):
        if not found or (len(found[-1]) + 1) * len(read[number]) > IN_A_BATCH:
            found.append([])
        found[-1].append(number)
    return found
