"""Recall: of the keys that dense attention weighs most, how many does a method read as they are?

Counted for each query head and new token among the tokens a method may leave out: the first, the last and the new ones
are always read, and would only raise the number. A token whose leaf is closed is not read, though its mean is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from vcc.decoders import attend, interface

TOP = 100


def recall(scores: Tensor, read: Tensor, top: int = TOP) -> Tensor:
    """scores (H, G, Q, m) of G query heads a KV head, read (H, Q, m) -> (H, Q): the share of the best that is read."""
    best = scores.topk(min(top, scores.shape[3]), 3).indices
    return read[:, None].expand(scores.shape).gather(3, best).float().mean((1, 3))


@contextmanager
def recalls_of_trees(top: int = TOP) -> Iterator[list[Tensor]]:
    """Fills with the recall (H, Q) of each layer that a wrapped model runs, for one sequence and two scales."""
    found: list[Tensor] = []
    choose, whole = attend.choose_nodes, interface.attend_tree
    chosen: list[Tensor] = []

    def choosing(*args: Any) -> Any:
        result = choose(*args)
        chosen.append(result[1])  # (1, H, Q, nodes)
        return result

    def attending(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor, tree: Any, *rest: Any) -> Any:
        chosen.clear()
        result = whole(query, keys, values, visible, tree, *rest)
        if chosen:  # there is a tree
            tokens = tree.keys[0, :, : tree.longest].float()
            scores = query[0].transpose(1, 2).float() @ tokens[:, None].mT  # (H, G, Q, m)
            found.append(recall(scores, chosen[0][0].repeat_interleave(tree.scales[0], 2), top))
        return result

    attend.choose_nodes, interface.attend_tree = choosing, attending
    try:
        yield found
    finally:
        attend.choose_nodes, interface.attend_tree = choose, whole
