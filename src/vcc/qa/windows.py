"""Passages of a document in windows of their own, each with a question: `[CLS] question [SEP] passage [SEP]`.

A window has the model's training length, so the untouched model reads it.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from vcc.core.rows import Rows
from vcc.data.answers import ScoredSpan, span_table
from vcc.data.collate import NULL_POSITION
from vcc.data.features import Frame

Ints = NDArray[np.integer]
Bools = NDArray[np.bool_]
WINDOWS_AT_ONCE = {"cpu": 8, "cuda": 512}  # a CPU is a third slower with 64, which do not fit into its caches
AHEAD = {"cpu": 1, "cuda": 12}  # passages of a question; a GPU reads twelve about as fast as one


@dataclass(frozen=True)
class Found(ScoredSpan):
    """A span of a document; its score is its lead over `none`, the score of "no answer" in the same window."""

    none: float


class ChosenPassage(NamedTuple):
    """A passage that is read again with a question."""

    question: int
    start: int  # token of the document
    size: int  # tokens


class Batch(NamedTuple):
    """Windows (W, n) for a model, and the place of each passage in its window."""

    ids: Tensor
    mask: Tensor
    types: Tensor
    first: Tensor  # (W,) where the passage starts
    end: Tensor  # (W,) and where it ends, excluded


def room(question: Ints, frame: Frame, window: int) -> int:
    """The number of document tokens that fit into a window with a question; may be 0."""
    return max(0, window - len(question) - len(frame.before) - len(frame.between) - len(frame.after))


def batch(pairs: Sequence[tuple[Ints, Ints]], frame: Frame) -> Batch:
    """Make windows of questions and passages, padded to the longest."""
    head, middle, tail = len(frame.before), len(frame.between), len(frame.after)
    first = np.array([head + len(question) + middle for question, _ in pairs])
    end = first + np.array([len(passage) for _, passage in pairs])
    ids = np.zeros((len(pairs), int(end.max()) + tail), np.int64)
    ids[:, :head] = frame.before
    for row, (question, passage), a, b in zip(ids, pairs, first.tolist(), end.tolist(), strict=True):
        row[head : a - middle] = question
        row[a - middle : a] = frame.between
        row[a:b] = passage
        row[b : b + tail] = frame.after
    places = np.arange(ids.shape[1])
    real = places < end[:, None] + tail
    types = (real & (places >= first[:, None])) * np.int64(frame.second_type)
    return Batch(*map(torch.from_numpy, (ids, real.astype(np.int64), types, first, end)))


def token_types(config: Any, types: Tensor) -> dict[str, Tensor]:
    """The token types as an argument of a model; nothing if it has none."""
    return {"token_type_ids": types} if getattr(config, "type_vocab_size", 1) > 1 else {}


def any_shape(device: torch.device) -> AbstractContextManager[None]:
    """Attention on a GPU without cuDNN, which plans every new shape for a fifth of a second: windows have many."""
    if device.type != "cuda":
        return nullcontext()
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


def window_logits(model: Any, given: Batch, host: Any = None) -> Tensor:
    """Start and end logits (W, n, 2): "no answer" at place 0, the CLS token; -inf outside the passages.

    `host` runs the layers instead of the model's own forward, if it is given.
    """
    device = model.device
    types = token_types(model.config, given.types.to(device))
    if host is None:
        with any_shape(device):
            out = model(input_ids=given.ids.to(device), attention_mask=given.mask.to(device), **types)
        logits = torch.stack([out.start_logits, out.end_logits], -1).float()
    else:
        rows = Rows(host.embed({"input_ids": given.ids, **types}, None), given.mask, torch.zeros_like(given.ids))
        for index in range(host.num_layers):
            rows = rows.with_hidden(host.layer(index, rows, consecutive=True))
        logits = model.qa_outputs(host.finish(rows.hidden)).float()
    place = torch.arange(logits.shape[1], device=device)
    outside = (place < given.first.to(device)[:, None]) | (place >= given.end.to(device)[:, None])
    outside[:, NULL_POSITION] = False
    return logits.masked_fill(outside[..., None], -torch.inf)


def best_found(logits: Tensor, starts: Sequence[int], top: int, longest: int) -> list[list[Found]]:
    """Return the best spans of each row of logits (R, 1 + n, 2). Place 0 is "no answer", place 1 is token starts[i] of
    the document."""
    spans = span_table(logits[:, 1:, 0], logits[:, 1:, 1], top, longest)
    none = logits[:, NULL_POSITION].sum(1).double()[:, None, None].expand(-1, spans.shape[1], 1)
    rows = torch.cat([spans, none], 2).tolist()  # synchronises with the device once
    return [
        [
            Found(int(first) + start, int(last) + start, score - null, null)
            for score, first, last, null in row
            if score > -torch.inf
        ]
        for row, start in zip(rows, starts, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class WindowReader:
    """A model that reads passages uncompressed, each in a window with its question."""

    model: Any
    frame: Frame
    size: int  # tokens of a window
    longest_answer: int  # tokens
    host: Any = None  # runs the layers, if the model's own forward does not

    @property
    def ahead(self) -> int:
        """The passages of a question that are read before what they hold is looked at."""
        return AHEAD.get(self.model.device.type, 1)

    @property
    def at_once(self) -> int:
        """Windows in a batch."""
        return WINDOWS_AT_ONCE.get(self.model.device.type, 8)

    def look(
        self,
        ids: Ints,
        questions: Sequence[Ints],
        chosen: Sequence[ChosenPassage],
        top: int,
        blank: Bools | None = None,
    ) -> list[list[Found]]:
        """Return, per question, the best spans of its passages, at most `top` per passage."""
        found: list[list[Found]] = [[] for _ in questions]
        for passage, spans in zip(chosen, self.look_at_each(ids, questions, chosen, top, blank), strict=True):
            found[passage.question] += spans
        return found

    def look_at_each(
        self,
        ids: Ints,
        questions: Sequence[Ints],
        chosen: Sequence[ChosenPassage],
        top: int,
        blank: Bools | None = None,
    ) -> list[list[Found]]:
        """Return, per passage, its best spans, at most `top`.

        No answer starts or ends at a `blank` (n,) token. Windows of about the same length are read together: padding
        costs time.
        """
        found: list[list[Found]] = [[] for _ in chosen]
        at_once = self.at_once
        by_length = sorted(range(len(chosen)), key=lambda i: len(questions[chosen[i].question]) + chosen[i].size)
        for at in range(0, len(by_length), at_once):
            numbers = by_length[at : at + at_once]
            some = [chosen[i] for i in numbers]
            given = batch([(questions[i], ids[start : start + size]) for i, start, size in some], self.frame)
            logits, first = window_logits(self.model, given, self.host), given.first.tolist()
            if blank is not None:
                hidden = np.zeros(logits.shape[:2], bool)
                for row, a, (_, start, size) in zip(hidden, first, some, strict=True):
                    inside = blank[start : start + size]
                    row[a : a + len(inside)] = inside
                logits = logits.masked_fill(torch.from_numpy(hidden).to(logits.device)[..., None], -torch.inf)
            starts = [1 + passage.start - a for passage, a in zip(some, first, strict=True)]
            for i, spans in zip(numbers, best_found(logits, starts, top, self.longest_answer), strict=True):
                found[i] = spans
        return found
