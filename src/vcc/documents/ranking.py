"""How relevant whole texts are to a question, for reranking."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from vcc.core.tree import SegmentTree
from vcc.data.features import tokenize_text
from vcc.documents.asker import Asker
from vcc.encode import in_windows

SATURATION, LENGTH = 1.2, 0.75  # BM25's k1 and b
Floats = NDArray[np.floating]
Ints = NDArray[np.integer]


@torch.inference_mode()
def relevance(asker: Asker, question: str, texts: Sequence[str]) -> list[float]:
    """Return a score from 0 to 1 for each text: how well its best node and its words match the question.

    Every text is read whole. A text without a token scores 0.
    """
    wanted = asker.qa.ids_of(question)
    documents = [tokenize_text(text, asker.tokenizer).ids for text in texts]
    vector = question_vector(asker, wanted)
    nodes = [best_node(asker.qa.read([ids]), vector) if len(ids) else 0.0 for ids in documents]
    words = word_scores(wanted, documents)
    best = max(words, default=0.0)
    shares = [score / best if best else 0.0 for score in words]
    return [(max(node, 0.0) + share) / 2 for node, share in zip(nodes, shares, strict=True)]


def question_vector(asker: Asker, question: Ints) -> torch.Tensor:
    """The mean of the question's tokens after the layers that run on windows, (D,)."""
    qa = asker.qa
    vips = in_windows(qa.host, qa.vips([question]), qa.config.resolved(qa.host.num_layers))
    return (vips.hidden * vips.counts[..., None].to(vips.hidden.dtype)).sum(1)[0]


def best_node(tree: SegmentTree, vector: torch.Tensor) -> float:
    """The largest cosine of a vector and the means at the coarsest scale."""
    means = tree.means[0]
    return float(torch.cosine_similarity(means, vector.to(means)[None], dim=-1).max())


def word_scores(question: Ints, documents: Sequence[Ints]) -> list[float]:
    """BM25 of the question's tokens in each document."""
    counts = [Counter(ids.tolist()) for ids in documents]
    mean = max(sum(map(len, documents)) / max(len(documents), 1), 1)
    scores = [0.0] * len(documents)
    for token in set(question.tolist()):
        holding = sum(token in own for own in counts)
        rarity = float(np.log1p((len(documents) - holding + 0.5) / (holding + 0.5)))
        for i, own in enumerate(counts):
            relative = 1 - LENGTH + LENGTH * len(documents[i]) / mean
            scores[i] += rarity * own[token] * (SATURATION + 1) / (own[token] + SATURATION * relative)
    return scores
