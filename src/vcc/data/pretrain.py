"""Sequences for continued pretraining: packed documents with some tokens hidden; the hidden places are the VIPs.

    PretrainDataset(store, MaskedLM.of(tokenizer), length=4096, seed=0, size=...)[i] -> Masked

Item i is a function of (seed, i): documents are reshuffled each epoch, concatenated, and split to length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vcc.data.collate import IGNORED, pad_ids
from vcc.data.corpus import TokenStore
from vcc.data.features import Frame
from vcc.errors import ModelError, UsageError

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Masked:
    """One sequence with tokens hidden. `labels` are in place (n,) for masked LM, a separate text (t,) for T5."""

    input_ids: Ints  # (n,)
    vip_mask: Ints  # (n,)
    labels: Ints
    in_place: bool


class Hiding(Protocol):
    """A way to hide tokens."""

    def raw_length(self, length: int) -> int:
        """The number of text tokens that fill a sequence of `length` tokens."""

    def hide_words(self, tokens: Ints, rng: np.random.Generator) -> Masked:
        """Hide some of these tokens."""


@dataclass(frozen=True)
class MaskedLM:
    """BERT's task: of the chosen tokens 80% become the mask, 10% any token, 10% stay; all are VIPs and predicted.

    The paper chooses 7.5% at 4K to keep the VIPs few. `cluster_window` puts them in a few windows of that many tokens,
    with `cluster_density` of each window chosen, so the VIPs concern few places of the text.
    """

    frame: Frame
    mask_id: int
    vocabulary: int
    special_ids: tuple[int, ...]
    ratio: float = 0.075
    cluster_window: int | None = None
    cluster_density: float = 0.3

    def __post_init__(self) -> None:
        if not 0 < self.ratio < 1:
            raise UsageError(f"mask ratio {self.ratio} must lie between 0 and 1")
        if self.cluster_window is not None:
            if self.cluster_window < 1:
                raise UsageError(f"cluster_window {self.cluster_window} must be at least 1")
            if not self.ratio <= self.cluster_density <= 1:
                raise UsageError(
                    f"cluster_density {self.cluster_density} must lie between the mask ratio {self.ratio} and 1"
                )

    @staticmethod
    def of(tokenizer: Any, **settings: Any) -> "MaskedLM":
        if tokenizer.mask_token_id is None:
            raise ModelError(f"{type(tokenizer).__name__} has no mask token: masked LM needs one")
        return MaskedLM(
            Frame.of(tokenizer), tokenizer.mask_token_id, len(tokenizer), tuple(tokenizer.all_special_ids), **settings
        )

    def raw_length(self, length: int) -> int:
        return length - len(self.frame.before) - len(self.frame.after)

    def hide_words(self, tokens: Ints, rng: np.random.Generator) -> Masked:
        ids = np.concatenate([self.frame.before, tokens, self.frame.after]).astype(np.int64)
        free = np.flatnonzero(~np.isin(ids, self.special_ids))  # special tokens are never hidden
        wanted = round(self.ratio * len(free))
        chosen = rng.permutation(self._candidates(free, wanted, rng))[:wanted]
        labels, vips = np.full(len(ids), IGNORED, dtype=np.int64), np.zeros(len(ids), dtype=np.int64)
        labels[chosen], vips[chosen] = ids[chosen], 1
        fate = rng.random(len(chosen))
        ids[chosen[fate < 0.8]] = self.mask_id
        swapped = chosen[(fate >= 0.8) & (fate < 0.9)]
        ids[swapped] = rng.integers(self.vocabulary, size=len(swapped))
        return Masked(ids, vips, labels, in_place=True)

    def _candidates(self, free: Ints, wanted: int, rng: np.random.Generator) -> Ints:
        """All places, or those of as many whole windows as the number needs at the density."""
        if self.cluster_window is None:
            return free
        windows = np.array_split(free, max(len(free) // self.cluster_window, 1))
        taken: list[Ints] = []
        for w in rng.permutation(len(windows)):
            if sum(map(len, taken)) * self.cluster_density >= wanted:
                break
            taken.append(windows[w])
        return np.concatenate(taken) if taken else free[:0]


@dataclass(frozen=True)
class SpanCorruption:
    """T5's task: 15% of the tokens, in spans of 3 on average, each span replaced by one sentinel, which is a VIP.

    The target is each sentinel followed by what it hides. T5 has 100 sentinels and 4,096 tokens have about 200
    spans: sentinels are reused cyclically, and their order distinguishes them.
    """

    sentinel_ids: tuple[int, ...]
    end_id: int
    ratio: float = 0.15
    mean_span: float = 3.0

    def __post_init__(self) -> None:
        if not 0 < self.ratio < 1:
            raise UsageError(f"mask ratio {self.ratio} must lie between 0 and 1")
        if self.mean_span < 1:
            raise UsageError(f"mean_span {self.mean_span} must be at least 1")

    @staticmethod
    def of(tokenizer: Any, **settings: Any) -> "SpanCorruption":
        vocabulary = tokenizer.get_vocab()
        ids = [vocabulary[f"<extra_id_{i}>"] for i in range(len(vocabulary)) if f"<extra_id_{i}>" in vocabulary]
        if not ids:
            raise ModelError(
                f"{type(tokenizer).__name__} has no sentinels <extra_id_0>, <extra_id_1>, ...: span "
                "corruption needs them, as T5 has them"
            )
        return SpanCorruption(tuple(ids), tokenizer.eos_token_id, **settings)

    def counts(self, n: int) -> tuple[int, int]:
        """The number of hidden tokens among n, and of their spans."""
        hidden = min(max(round(n * self.ratio), 1), n - 1)
        return hidden, max(1, min(round(hidden / self.mean_span), hidden, n - hidden))

    def raw_length(self, length: int) -> int:
        n = length
        while self._input_length(n + 1) <= length:
            n += 1
        return n

    def _input_length(self, n: int) -> int:
        hidden, spans = self.counts(n)
        return n - hidden + spans + 1  # with the end token

    def hide_words(self, tokens: Ints, rng: np.random.Generator) -> Masked:
        hidden, spans = self.counts(len(tokens))
        # As in T5: kept and hidden tokens are split at random into equally many pieces, and alternate, kept first.
        sizes = np.stack([_pieces(len(tokens) - hidden, spans, rng), _pieces(hidden, spans, rng)], 1).reshape(-1)
        pieces = np.split(np.asarray(tokens, dtype=np.int64), np.cumsum(sizes)[:-1])
        inputs, targets, vips = [], [], []
        for i in range(spans):
            sentinel = np.array([self.sentinel_ids[i % len(self.sentinel_ids)]])
            inputs += [pieces[2 * i], sentinel]
            targets += [sentinel, pieces[2 * i + 1]]
            vips += [np.zeros(len(pieces[2 * i]), dtype=np.int64), np.ones(1, dtype=np.int64)]
        end = np.array([self.end_id])
        return Masked(
            np.concatenate([*inputs, end]),
            np.concatenate([*vips, np.zeros(1, dtype=np.int64)]),
            np.concatenate([*targets, end]),
            in_place=False,
        )


def _pieces(total: int, count: int, rng: np.random.Generator) -> Ints:
    """Split `total` at random into `count` parts of at least one each."""
    cuts = np.sort(rng.permutation(total - 1)[: count - 1]) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


class PretrainDataset(Sequence[Masked]):
    """`size` sequences of at most `length` tokens, made on demand.

    `documents` are the indices of those to read; None: all.
    """

    def __init__(
        self, store: TokenStore, hiding: Hiding, length: int, seed: int, size: int, documents: Ints | None = None
    ) -> None:
        self.store, self.hiding, self.seed, self.size = store, hiding, seed, size
        self.documents = np.arange(len(store.ends)) if documents is None else documents
        self.sizes = np.diff(store.ends, prepend=0)[self.documents]
        self.raw = hiding.raw_length(length)
        self.per_epoch = int(self.sizes.sum()) // max(self.raw, 1)
        if self.raw < 2 or self.per_epoch < 1:
            raise UsageError(
                f"length {length} takes {self.raw} tokens of text a sequence: must be at least 2, and the "
                f"{len(self.documents)} documents, of {self.sizes.sum()} tokens, must hold one"
            )
        self._epoch: tuple[int, Ints, Ints] | None = None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.size))]
        if not 0 <= index < self.size:
            raise IndexError(f"sequence {index} of {self.size}")
        return self.hiding.hide_words(self.text(index), np.random.default_rng([self.seed, 1, index]))

    def text(self, index: int) -> Ints:
        """The tokens of sequence `index`, before any is hidden (raw,)."""
        epoch, place = divmod(index, self.per_epoch)
        order, ends = self._order(epoch)
        start, stop = place * self.raw, (place + 1) * self.raw
        pieces = []
        for d in range(int(np.searchsorted(ends, start, side="right")), len(ends)):
            first = int(ends[d - 1]) if d else 0
            if first >= stop:
                break
            base = (int(self.store.ends[order[d] - 1]) if order[d] else 0) - first
            pieces.append(self.store.tokens[base + max(start, first) : base + min(stop, int(ends[d]))])
        return np.concatenate(pieces).astype(np.int64)

    def _order(self, epoch: int) -> tuple[Ints, Ints]:
        """The documents in this epoch's order, and where each ends when they are concatenated."""
        if self._epoch is None or self._epoch[0] != epoch:
            order = np.random.default_rng([self.seed, 0, epoch]).permutation(len(self.documents))
            self._epoch = (epoch, self.documents[order], np.cumsum(self.sizes[order]))
        return self._epoch[1], self._epoch[2]


def collate_masked(items: Sequence[Masked], pad_id: int, multiple: int = 1) -> dict[str, Tensor]:
    """A batch: input_ids, attention_mask, vip_mask (B, n), labels (B, n) or (B, t), padded with -100."""
    longest = max(len(item.input_ids) for item in items)
    n = -(-longest // multiple) * multiple
    lengths = torch.tensor([len(item.input_ids) for item in items])
    return {
        "input_ids": pad_ids([item.input_ids for item in items], pad_id, n),
        "attention_mask": (torch.arange(n) < lengths[:, None]).long(),
        "vip_mask": pad_ids([item.vip_mask for item in items], 0, n),
        "labels": pad_ids([item.labels for item in items], IGNORED, n if items[0].in_place else None),
    }
