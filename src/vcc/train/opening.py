"""Teach a model which segments to open: where the answer is known, its segments should get the score.

with openings_of(model) as seen:
    output = model(**inputs)
loss = loss + weight * answer_opening_loss(seen, spans)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from vcc.core.cut import Cut, visited_nodes
from vcc.core.tree import SegmentTree
from vcc.hosts.forward.wrapped import Openings, state_of


def opening_loss(cuts: Sequence[Cut], tree: SegmentTree, gold: Tensor) -> Tensor:
    """-log of the share of each visited node with gold tokens in the score, among itself and all nodes without one.
    Mean over these nodes, and over scales and cuts. `gold` (B, m) marks tokens of the tree."""
    total, number = torch.zeros((), device=gold.device), 0
    for cut in cuts:
        for depth, score in enumerate(cut.scores):
            wanted = gold.unflatten(1, (-1, tree.scales[depth])).any(2)
            wanted = wanted.gather(1, visited_nodes(tree, cut, depth))
            score = score.float() + 1e-9
            others = score.masked_fill(wanted, 0).sum(1, keepdim=True)
            total = total + (((score + others) / score).log() * wanted).sum() / wanted.sum().clamp(min=1)
            number += 1
    return total / max(number, 1)


def answer_opening_loss(seen: Openings, spans: Tensor) -> Tensor:
    """The loss of a batch whose answers are at `spans` (B, S, 2), first and last tokens, negative where there is none.
    Zero if the batch was not compressed."""
    if seen.tree is None:
        return torch.zeros((), device=spans.device)
    tokens = seen.tree.positions[-1].long().clamp(min=0)  # (B, m) the tokens of the tree
    places = tokens[:, None]
    inside = (places >= spans[..., :1]) & (places <= spans[..., 1:]) & (spans[..., :1] >= 0)  # (B, S, m)
    return opening_loss(seen.cuts, seen.tree, inside.any(1) & (seen.tree.counts[-1] > 0))


@contextmanager
def openings_of(model: Any) -> Iterator[Openings]:
    """Within the block, the model keeps what its last forward pass opened, with gradients."""
    state = state_of(model)
    state.openings = Openings()
    try:
        yield state.openings
    finally:
        state.openings = None
