"""A second look: the passages that a compressed reading points to are read again in full, each with its question.

A window `[CLS] question [SEP] passage [SEP]` is as short as the model was trained for, so the untouched model reads it.
The compressed layers have to find the place, by the nodes they score highest and by the spans they find; the exact
words are found here.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vcc.core.cut import Cut, visited_nodes
from vcc.core.tree import SegmentTree
from vcc.data.answers import ScoredSpan
from vcc.data.features import Frame

Ints = NDArray[np.integer]
NEAR = 0.3  # a node with less than this part of the best one's score has no chance
BEHIND = 8.0  # a span whose score is that far below no answer has no chance


class Passage(NamedTuple):
    question: int
    start: int  # token of the document


class Batch(NamedTuple):
    """Windows (W, n) for a model, and where a passage's tokens stand in its window."""

    ids: Tensor
    mask: Tensor
    types: Tensor
    first: Tensor  # (W,) where the passage starts
    end: Tensor  # (W,) and where it has ended


def room(question: Ints, frame: Frame, window: int) -> int:
    """Tokens of a document that fit into a window beside a question; maybe none."""
    return max(0, window - len(question) - len(frame.before) - len(frame.between) - len(frame.after))


def best_nodes(cut: Cut, tree: SegmentTree, places: Ints, top: int) -> list[list[ScoredSpan]]:
    """For each question the nodes with the largest scores at the last scale that has any, as spans of the document.

    `places` (n,) says where each token of the document stands in the tree.
    """
    depth = len(cut.scores) - 1
    if depth < 0:
        return [[] for _ in tree.means]
    scores, best = cut.scores[depth].topk(min(top, cut.scores[depth].shape[1]), dim=1)
    begin = visited_nodes(tree, cut, depth).gather(1, best).cpu().numpy() * tree.scales[depth]
    first, last = np.searchsorted(places, begin), np.searchsorted(places, begin + tree.scales[depth]) - 1
    rows = zip(first.tolist(), last.tolist(), scores.tolist(), strict=True)
    return [[ScoredSpan(*one) for one in zip(*row, strict=True) if one[0] <= one[1]] for row in rows]


def passages(
    spans: Sequence[Sequence[ScoredSpan]],
    nodes: Sequence[Sequence[ScoredSpan]],
    rooms: Sequence[int],
    n: int,
    looks: int,
) -> list[Passage]:
    """For each question the passages around its spans and its nodes, by turns, best first, at most `looks`; none where
    there is no room for them.

    The best of each in any case; others where they have a chance. The score of a span is its lead over no answer.
    """
    chosen: list[Passage] = []
    for question, (found, opened, size) in enumerate(zip(spans, nodes, rooms, strict=True)):
        likely = [span for i, span in enumerate(found) if i == 0 or span.score > -BEHIND]
        near = [node for node in opened if node.score >= NEAR * opened[0].score]
        mine: list[Passage] = []
        for span in (one for pair in zip_longest(likely, near) for one in pair if one is not None):
            if len(mine) == looks or not size:
                break
            if not any(passage.start <= span.first and span.last < passage.start + size for passage in mine):
                start = max(0, min((span.first + span.last - size) // 2, n - size))
                mine.append(Passage(question, start))
        chosen += mine
    return chosen


def batch(pairs: Sequence[tuple[Ints, Ints]], frame: Frame) -> Batch:
    """The windows of questions and passages, padded to the longest."""
    rows, types, first, end = [], [], [], []
    for question, passage in pairs:
        before = np.concatenate([frame.before, question, frame.between])
        rows.append(torch.as_tensor(np.concatenate([before, passage, frame.after])).long())
        types.append((torch.arange(len(rows[-1])) >= len(before)) * frame.second_type)
        first.append(len(before))
        end.append(len(before) + len(passage))
    ids = pad_sequence(rows, batch_first=True)
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return Batch(ids, mask, pad_sequence(types, batch_first=True), torch.tensor(first), torch.tensor(end))


def window_logits(model: Any, given: Batch) -> Tensor:
    """Start and end logits (W, n, 2): of no answer at place 0, the CLS token, then -inf but for the passages."""
    device = model.device
    types = {"token_type_ids": given.types.to(device)} if getattr(model.config, "type_vocab_size", 1) > 1 else {}
    out = model(input_ids=given.ids.to(device), attention_mask=given.mask.to(device), **types)
    logits = torch.stack([out.start_logits, out.end_logits], -1).float()
    place = torch.arange(logits.shape[1], device=device)
    outside = (place < given.first.to(device)[:, None]) | (place >= given.end.to(device)[:, None])
    outside[:, 0] = False
    return logits.masked_fill(outside[..., None], -torch.inf)
