"""Other boundaries of a span: a model is often sure of the place of an answer, and not of where it begins and ends."""

import torch
from torch import Tensor

SHARED = 0.5  # at most, of the tokens that either span has: with more, both say the same


def other_edges(logits: Tensor, first: int, last: int, longest: int) -> tuple[float, int, int] | None:
    """The score, first and last token of the best span that overlaps tokens first..last and has other boundaries.

    `logits` (n, 2) of starts and ends; -inf where no answer may start or end.
    """
    low = max(0, first - longest + 1)
    starts = torch.arange(low, last + 1)[:, None]
    ends = torch.arange(first, min(len(logits), last + longest))[None]
    common = ends.clamp(max=last) - starts.clamp(min=first) + 1
    either = ends.clamp(min=last) - starts.clamp(max=first) + 1
    allowed = (ends >= starts) & (ends < starts + longest) & (common <= SHARED * either)
    near = logits[low:].float().cpu()
    scores = near[: len(starts), None, 0] + near[None, first - low : first - low + ends.shape[1], 1]
    scores = scores.masked_fill(~allowed, -torch.inf)
    best, place = scores.flatten().max(0)
    if best == -torch.inf:
        return None
    return float(best), low + int(place) // ends.shape[1], first + int(place) % ends.shape[1]
