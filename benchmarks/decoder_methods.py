"""What others read of a long prefix when a token is decoded, written plainly: whole score matrices and masks.

Nothing here is fast. Only what a query may see is as in the method, and how many rows that is: a key beside its value
is a row, a group's mean or its smallest and largest key beside each other another. Every query chooses by itself, as it
would when tokens are decoded one by one; the query heads that share a key head choose together. The first and the last
tokens of the prefix and all new ones are always read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from benchmarks.decoder_recall import recall
from benchmarks.decoder_texts import Pairs, cache_of, cut
from vcc.decoders.config import DecoderConfig
from vcc.decoders.order import order_by_key

FIRST, LAST, LEAF = 16, 64, 16
WATCHING = 32  # last tokens of the prefix whose attention SnapKV chooses by
NAME = "measured"


@dataclass(frozen=True, eq=False)
class Reading:
    """One layer's prefix, the new tokens after it, and the queries. H key heads, G query heads each, Q new tokens."""

    q: Tensor  # (H, G, Q, d), scaled
    k: Tensor  # (H, n, d)
    v: Tensor
    new_k: Tensor  # (H, Q, d)
    new_v: Tensor

    @property
    def middle(self) -> slice:
        """The tokens of the prefix that a method may leave out."""
        return slice(FIRST, self.k.shape[1] - LAST)


@dataclass(frozen=True, eq=False)
class Groups:
    """A layer's middle tokens in groups of similar keys or neighbouring places."""

    labels: Tensor  # (H, m) the group of each token
    k: Tensor  # (H, groups, d) means
    v: Tensor
    counts: Tensor  # (H, groups)

    @property
    def number(self) -> int:
        return self.counts.shape[1]


Labels = Callable[[Tensor, int], Tensor]  # keys (H, m, d), groups -> (H, m)


def group(labels_of: Labels, reading: Reading) -> Groups:
    k, v = reading.k[:, reading.middle], reading.v[:, reading.middle]
    groups = -(-k.shape[1] // LEAF)
    labels = labels_of(k, groups)
    counts = torch.zeros(k.shape[0], groups).scatter_add_(1, labels, torch.ones(labels.shape))
    sums = [
        torch.zeros(k.shape[0], groups, x.shape[2]).scatter_add_(1, labels[..., None].expand_as(x), x) for x in (k, v)
    ]
    means = [total / counts.clamp(min=1)[..., None] for total in sums]
    return Groups(labels, means[0], means[1], counts)


def by_position(keys: Tensor, groups: int) -> Tensor:
    return (torch.arange(keys.shape[1]) // LEAF).expand(keys.shape[:2])


def by_kmeans(keys: Tensor, groups: int, rounds: int = 8) -> Tensor:
    """Lloyd's algorithm from evenly spaced keys; a centre that loses all its keys stays where it is."""
    centres = keys[:, torch.linspace(0, keys.shape[1] - 1, groups).long()]
    labels = by_position(keys, groups)
    for _ in range(rounds):
        labels = (2 * keys @ centres.mT - centres.square().sum(2)[:, None]).argmax(2)
        counts = torch.zeros(centres.shape[:2]).scatter_add_(1, labels, torch.ones(labels.shape))[..., None]
        sums = torch.zeros_like(centres).scatter_add_(1, labels[..., None].expand_as(keys), keys)
        centres = torch.where(counts > 0, sums / counts.clamp(min=1), centres)
    return labels


def by_key(keys: Tensor, groups: int, piece: int = DecoderConfig.piece) -> Tensor:
    """The library's own order, a piece at a time."""
    labels, first = torch.empty(keys.shape[:2], dtype=torch.long), 0
    for start in range(0, keys.shape[1], piece):
        order = order_by_key(keys[:, start : start + piece], LEAF)  # (H, p)
        leaves = torch.arange(order.shape[1]) // LEAF + first
        labels[:, start : start + piece] = torch.empty_like(order).scatter(1, order, leaves.expand_as(order))
        first = int(leaves[-1]) + 1
    return labels


@dataclass(frozen=True, eq=False)
class Seen:
    """What each query reads: tokens of the middle (H, Q, m), and means of groups (H, Q, groups) where closed."""

    tokens: Tensor
    means: Tensor | None = None
    extra: int = 0  # rows read to choose by, if not those of the means


Method = Callable[
    [Reading, int, dict[str, Any]], Seen
]  # the layer's reading, nodes opened, what is kept between budgets


def kept(notes: dict[str, Any], name: str, make: Callable[[], Any]) -> Any:
    if name not in notes:
        notes[name] = make()
    return notes[name]


def mean_scores(reading: Reading, groups: Groups) -> Tensor:
    """(H, Q, groups) the attention that falls on each group through its mean, over the heads that share its keys."""
    logits = reading.q @ groups.k[:, None].mT + groups.counts.log()[:, None, None]
    return logits.softmax(3).mean(1)


def open_best(scores: Tensor, groups: Groups, rows: int) -> Tensor:
    """(H, Q, groups) the best groups that have `rows` rows together, or a part of one fewer."""
    best = scores.argsort(2, descending=True)
    sizes = groups.counts[:, None].expand_as(scores).gather(2, best)
    return torch.zeros_like(scores, dtype=torch.bool).scatter(2, best, sizes.cumsum(2) <= rows)


def grouped(name: str, labels_of: Labels, keep_means: bool) -> Method:
    def method(reading: Reading, opened: int, notes: dict[str, Any]) -> Seen:
        groups = kept(notes, name, lambda: group(labels_of, reading))
        notes["groups"] = groups
        open_ = open_best(mean_scores(reading, groups), groups, opened * LEAF)
        tokens = open_.gather(2, groups.labels[:, None].expand(-1, open_.shape[1], -1))
        if keep_means:
            return Seen(tokens, ~open_ & (groups.counts > 0)[:, None])
        return Seen(tokens, extra=groups.number)

    return method


def quest(reading: Reading, opened: int, notes: dict[str, Any]) -> Seen:
    """Pages of neighbours; a page is worth the largest score that a key within its bounds could have."""
    groups = kept(notes, "position", lambda: group(by_position, reading))

    def bounds() -> tuple[Tensor, Tensor]:
        k = reading.k[:, reading.middle]
        index, shape = groups.labels[..., None].expand_as(k), groups.k
        smallest, largest = (
            torch.zeros_like(shape).scatter_reduce(1, index, k, how, include_self=False) for how in ("amin", "amax")
        )
        return smallest, largest

    low, high = kept(notes, "bounds", bounds)
    # Of each channel the larger product: the part of q above 0 takes the largest key, the part below the smallest.
    score = (reading.q.clamp(min=0) @ high[:, None].mT + reading.q.clamp(max=0) @ low[:, None].mT).amax(1)
    open_ = open_best(score, groups, opened * LEAF)
    return Seen(open_.gather(2, groups.labels[:, None].expand(-1, open_.shape[1], -1)), extra=groups.number)


def snap_kv(reading: Reading, opened: int, notes: dict[str, Any]) -> Seen:
    """Chosen once, by what the last queries of the prefix attended to, smoothed over neighbours; the rest is gone."""
    middle = reading.middle
    length = middle.stop - middle.start
    score = notes["votes"][:, middle]  # (H, n), from the prefix
    score = torch.nn.functional.max_pool1d(score[:, None], 7, 1, 3)[:, 0]
    rows = min(length, opened * LEAF + -(-length // LEAF))  # as many as the others read
    best = score.topk(rows, 1).indices
    tokens = torch.zeros(score.shape, dtype=torch.bool).scatter(1, best, True)
    return Seen(tokens[:, None].expand(-1, reading.q.shape[2], -1))


def local_only(reading: Reading, opened: int, notes: dict[str, Any]) -> Seen:
    """The first tokens and the last, as many as the others read."""
    length = reading.k.shape[1] - FIRST - LAST
    rows = min(length, opened * LEAF + -(-length // LEAF))
    tokens = torch.arange(length) >= length - rows
    return Seen(tokens.expand(*reading.q.shape[:1], reading.q.shape[2], -1))


def watch(reading: Reading, opened: int, notes: dict[str, Any]) -> Seen:
    """Dense; notes (H, n) how much of the queries' attention each token had."""
    new = reading.q.shape[2]
    later = ~torch.ones(new, new, dtype=torch.bool).tril()
    logits = torch.cat(
        [reading.q @ reading.k[:, None].mT, (reading.q @ reading.new_k[:, None].mT).masked_fill(later, -torch.inf)], 3
    )
    notes["votes"] = logits.softmax(3).sum((1, 2))
    return dense(reading, opened, notes)


def dense(reading: Reading, opened: int, notes: dict[str, Any]) -> Seen:
    return Seen(torch.ones(reading.q.shape[0], reading.q.shape[2], reading.k.shape[1] - FIRST - LAST, dtype=torch.bool))


METHODS: dict[str, Method] = {
    "dense": dense,
    "watch": watch,
    "first + local": local_only,
    "SnapKV": snap_kv,
    "Quest": quest,
    "positions, dropped": grouped("position", by_position, False),
    "positions, means": grouped("position", by_position, True),
    "key order, dropped": grouped("key", by_key, False),
    "key order, means": grouped("key", by_key, True),
    "k-means, means": grouped("k-means", by_kmeans, True),
}


def attend_seen(reading: Reading, seen: Seen, groups: Groups | None) -> tuple[Tensor, Tensor]:
    """(H, G, Q, d) the attention of the queries over what each sees, and (H, Q) how many rows that is."""
    heads, _, new, _ = reading.q.shape
    always = torch.ones(heads, new, FIRST, dtype=torch.bool), torch.ones(heads, new, LAST, dtype=torch.bool)
    past = torch.cat([always[0], seen.tokens, always[1]], 2)
    causal = torch.ones(new, new, dtype=torch.bool).tril().expand(heads, -1, -1)
    logits = [
        (reading.q @ reading.k[:, None].mT).masked_fill(~past[:, None], -torch.inf),
        (reading.q @ reading.new_k[:, None].mT).masked_fill(~causal[:, None], -torch.inf),
    ]
    values, rows = [reading.v, reading.new_v], past.sum(2) + causal.sum(2) + seen.extra
    if seen.means is not None:
        assert groups is not None
        closed = reading.q @ groups.k[:, None].mT + groups.counts.log()[:, None, None]
        logits.append(closed.masked_fill(~seen.means[:, None], -torch.inf))
        values.append(groups.v)
        rows = rows + (groups.counts > 0).sum(1, keepdim=True)  # those of opened groups were read to choose by
    return torch.cat(logits, 3).softmax(3) @ torch.cat(values, 1)[:, None], rows


class Probe:
    """Runs a model's new tokens over a prefix by one method after the other."""

    def __init__(self, model: Any, ids: Tensor, prefix: Pairs) -> None:
        """`ids` (n,) are the tokens whose keys and values the prefix ends with."""
        self.model, self.prefix, self.place = model, cut(prefix, 0, -WATCHING), len(ids) - WATCHING
        self.notes: list[dict[str, Any]] = [{} for _ in prefix]
        self.logits(ids[-WATCHING:], "watch")
        self.prefix, self.place = prefix, len(ids)

    @torch.inference_mode()
    def logits(self, ids: Tensor, method: str, opened: int = 0) -> tuple[Tensor, float]:
        """(Q, vocabulary) what the model expects after each of the new tokens, and the mean number of rows read."""
        self.method, self.opened, self.rows, self.recalls = METHODS[method], opened, list[Tensor](), list[Tensor]()
        AttentionInterface.register(NAME, self.attend)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        before = self.model.config._attn_implementation
        self.model.set_attn_implementation(NAME)
        try:
            with torch.device(ids.device):  # what the methods make is made there
                places = torch.arange(self.place, self.place + len(ids))[None]
                cache = cache_of(self.model, self.prefix)
                out = self.model(ids[None], past_key_values=cache, position_ids=places).logits[0]
        finally:
            self.model.set_attn_implementation(before)
        return out, float(torch.stack([rows.float().mean() for rows in self.rows]).mean())

    def attend(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **_: Any
    ) -> tuple[Tensor, None]:
        heads, new = key.shape[1], query.shape[2]
        q = query[0].unflatten(0, (heads, -1)) * scaling
        k, v, start = key[0], value[0], key.shape[2] - new
        reading = Reading(q, k[:, :start], v[:, :start], k[:, start:], v[:, start:])
        notes = self.notes[module.layer_idx]
        seen = self.method(reading, self.opened, notes)
        out, rows = attend_seen(reading, seen, notes.get("groups"))
        self.rows.append(rows)
        self.recalls.append(recall(q @ k[:, None, reading.middle].mT, seen.tokens))
        return out.flatten(0, 1).transpose(0, 1)[None], None  # (1, Q, heads, d)
