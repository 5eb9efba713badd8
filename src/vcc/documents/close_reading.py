"""A second look: the passages that a compressed reading points to are read again in full, each with its question.

A window `[CLS] question [SEP] passage [SEP]` is as short as the model was trained for, so the untouched model reads it.
The compressed layers have to find the place; the exact words are found here.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vcc.data.answers import ScoredSpan, Span
from vcc.data.features import Frame

Ints = NDArray[np.integer]
TRUST = 0.5  # how much the first reading's score counts, beside the second's
BEHIND = 8.0  # a span whose score is that far below no answer has no chance


class Passage(NamedTuple):
    question: int
    start: int  # token of the document
    lead: float = 0.0  # over no answer, of the span that it was chosen for

    def judge(self, span: Span, by: int) -> Span:
        """A span of its window as one of the document, `by` tokens further right. To its lead, what the first reading
        thought of the passage is added."""
        return replace(span, first=span.first + by, last=span.last + by, score=span.score + TRUST * self.lead)


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


def passages(spans: Sequence[Sequence[ScoredSpan]], rooms: Sequence[int], n: int, looks: int) -> list[Passage]:
    """For each question the passages around its spans, best first, at most `looks`: the best in any case, the others
    where the first reading gave them a chance. So a question without an answer costs one look.

    The score of a span is its lead over no answer.
    """
    chosen: list[Passage] = []
    for question, (some, size) in enumerate(zip(spans, rooms, strict=True)):
        starts: list[int] = []
        leads: list[float] = []
        for span in some:
            if len(starts) == looks or (starts and span.score < -BEHIND):
                break
            if not any(start <= span.first and span.last < start + size for start in starts):
                starts.append(max(0, min((span.first + span.last - size) // 2, n - size)))
                leads.append(span.score)
        chosen += [Passage(question, *one) for one in zip(starts, leads, strict=True)]
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
