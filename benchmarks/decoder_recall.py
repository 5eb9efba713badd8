"""Recall: of the keys that dense attention weighs most, how many does a method read as they are?

Counted for each query head and new token among the tokens a method may leave out: the first, the last and the new ones
are always read, and would only raise the number. A token whose leaf is closed is not read, though its mean is.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from vcc.decoders import attend, interface
from vcc.decoders.attend import Opened

TOP = 100


def recall(scores: Tensor, read: Tensor, top: int = TOP) -> Tensor:
    """scores (H, G, Q, m) of G query heads a KV head, read (H, Q, m) -> (H, Q): the share of the best that is read."""
    best = scores.topk(min(top, scores.shape[3]), 3).indices
    return read[:, None].expand(scores.shape).gather(3, best).float().mean((1, 3))


def tokens_read(chosen: Sequence[Opened], scales: Sequence[int], m: int) -> Tensor:
    """(H, Q, m) which of m tokens of one sequence lie under nodes that were opened at every scale."""
    nodes = chosen[0].nodes[0]  # (H, Q, h) among all of their scale
    for depth, opened in enumerate(chosen):
        if depth:
            nodes = nodes.gather(2, opened.nodes[0])
        fan_out = scales[depth] // scales[depth + 1]
        nodes = (nodes[..., None] * fan_out + torch.arange(fan_out, device=nodes.device)).flatten(2)
    read = torch.zeros(*nodes.shape[:2], m, dtype=torch.bool, device=nodes.device)
    return read.scatter(2, nodes, chosen[-1].wanted[0].repeat_interleave(scales[-2], 2))


@contextmanager
def recalls_of_trees(top: int = TOP) -> Iterator[list[Tensor]]:
    """Fills with the recall (H, Q) of each layer that a wrapped model runs, for one sequence."""
    found: list[Tensor] = []
    choose, whole = attend.choose_nodes, interface.attend_tree
    chosen: list[Opened] = []  # of each scale

    def choosing(*args: Any) -> Any:
        result = choose(*args)
        chosen.append(result[0])
        return result

    def attending(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor, tree: Any, *rest: Any) -> Any:
        chosen.clear()
        result = whole(query, keys, values, visible, tree, *rest)
        if chosen:  # there is a tree
            tokens = tree.keys[0, :, : tree.longest].float()
            scores = query[0].transpose(1, 2).float() @ tokens[:, None].mT  # (H, G, Q, m)
            found.append(recall(scores, tokens_read(chosen, tree.scales, tokens.shape[1]), top))
        return result

    with patch.object(attend, "choose_nodes", choosing), patch.object(interface, "attend_tree", attending):
        yield found
