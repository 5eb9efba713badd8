"""The cost of the tree per layer: choose + read + write, from 4K to 1M tokens, beside the naive way.

    make bench-core                      the table
    python benchmarks/core.py --json F   the numbers too

The scales grow with n; the cut has about 2,048 rows at every n. The naive way recomputes all means from the
tokens, decompresses the update to all of them and adds it, at every layer.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from json import dumps
from math import log2
from pathlib import Path
from typing import Annotated

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from vcc import Cut, Rows, SegmentTree, build_tree, choose_cut, read_cut
from vcc.commands.options import call
from vcc.core.cut import add_to_cut
from vcc.core.score import vip_attention

ROWS = 2_048
VIPS = 16
LENGTHS = tuple(2**k for k in range(12, 21, 2))
SMALL, LARGE, LIMIT = 2**16, 2**20, 1.5


@dataclass(frozen=True)
class Shape:
    """Scales and a budget whose cut has about ROWS rows."""

    scales: tuple[int, ...]
    budget: tuple[int, ...]

    def rows(self, n: int) -> int:
        fan_outs = [coarse // fine for coarse, fine in pairwise(self.scales)]
        return n // self.scales[0] + sum(h * (f - 1) for h, f in zip(self.budget, fan_outs, strict=True))


def shape(n: int, depth: int) -> Shape:
    """`depth` scales for n tokens: a few roots, equal fan-outs, and what is left of ROWS spent evenly on opening.

    The more scales, the fewer roots: 1,024 for two, 256 for three, 64 for four and 1 for the paper's binary tree.
    """
    budget: list[int] = []
    if depth > 4:  # (n, ..., 4, 2, 1)
        scales = tuple(2**k for k in reversed(range(int(log2(n)) + 1)))
        left = ROWS - 1
        for i in range(len(scales) - 1):
            budget.append(min(2**i, 2 * budget[-1] if budget else 1, left // (len(scales) - 1 - i)))
            left -= budget[-1]
        return Shape(scales, tuple(budget))
    roots = {2: 1024, 3: 256, 4: 64}[depth]
    height = int(log2(n // roots))  # fan-outs are powers of two that share the height
    heights = [height // (depth - 1) + (i < height % (depth - 1)) for i in range(depth - 1)]
    scales = tuple(2 ** sum(heights[i:]) for i in range(depth))
    visited, left = roots, ROWS - roots
    for i, h in enumerate(heights):
        share = left // (depth - 1 - i)
        budget.append(min(visited, max(1, share // (2**h - 1))))
        visited = budget[-1] * 2**h
        left -= budget[-1] * (2**h - 1)
    return Shape(scales, tuple(budget))


@dataclass(frozen=True)
class Result:
    n: int
    way: str
    scales: tuple[int, ...]
    budget: tuple[int, ...]
    rows: int
    read: int  # nodes looked at by choose + read
    changed: int  # nodes whose bits differ after the write
    milliseconds: float = float("inf")


Step = Callable[[], None]


def measure(steps: list[tuple[Result, Step]], seconds: float, rounds: int = 6) -> list[Result]:
    """With the least processor time of each step, on one thread.

    Each round goes through all steps, so a busy period of the machine affects all of them.
    """
    times = [float("inf")] * len(steps)
    for _ in range(rounds):
        for i, (_, step) in enumerate(steps):
            step()  # to warm up
            spent = 0.0
            while spent < seconds / rounds:
                start = time.thread_time()
                step()
                took = time.thread_time() - start
                times[i], spent = min(times[i], took), spent + took
    return [replace(result, milliseconds=1e3 * took) for (result, _), took in zip(steps, times, strict=True)]


def changed_nodes(before: SegmentTree, after: SegmentTree) -> int:
    pairs = [(before.means, after.means), *zip(before.differences, after.differences, strict=True)]
    return sum(int((a != b).any(2).sum()) for a, b in pairs)


def naive(hidden: Tensor, scales: tuple[int, ...], update: Tensor, owner: Tensor) -> Step:
    """All means of all scales from hidden (n, D), then S^+ update by looking up each token's row, and the sum.

    O(n D) at every layer. Memory is allocated beforehand, so only the work is measured.
    """
    levels = [hidden, *(hidden.new_empty(len(hidden) // s, hidden.shape[1]) for s in scales[-2::-1])]
    spread = torch.empty_like(hidden)

    def step() -> None:
        for fine, coarse in pairwise(levels):
            torch.mean(fine.unflatten(0, (len(coarse), -1)), 1, out=coarse)
        torch.index_select(update, 0, owner, out=spread)
        hidden.add_(spread)

    return step


def owners(scales: tuple[int, ...], cut: Cut, n: int) -> Tensor:
    """(n,) the row of the cut that stands for each token."""
    nodes, owner, row = torch.arange(n // scales[0]), torch.empty(n, dtype=torch.int64), 0
    for depth, s in enumerate(scales):
        kept = nodes[cut.kept[depth][0]]
        owner[kept[:, None] * s + torch.arange(s)] = torch.arange(row, row + len(kept))[:, None]
        row += len(kept)
        if depth + 1 < len(scales):
            fan_out = s // scales[depth + 1]
            nodes = (cut.opened_nodes[depth][0][:, None] * fan_out + torch.arange(fan_out)).flatten()
    return owner


def prepare(n: int, depths: tuple[int, ...], width: int) -> Iterator[tuple[Result, Step]]:
    """Every way of doing a layer's bookkeeping for n tokens, with what it touches."""
    generator = torch.Generator().manual_seed(0)
    rows = Rows(torch.randn(1, n, width, generator=generator), torch.ones(1, n), torch.arange(n).float()[None])
    vips = Rows(torch.randn(1, VIPS, width, generator=generator), torch.ones(1, VIPS), torch.zeros(1, VIPS))
    queries = vips.hidden[:, None]

    def score(nodes: Rows) -> Tensor:
        return vip_attention(queries, nodes.hidden[:, None], vips, nodes, width**-0.5)

    def layer(tree: SegmentTree, budget: tuple[int, ...], update: Tensor) -> None:
        cut = choose_cut(tree, score, budget)
        read_cut(tree, cut)
        add_to_cut(tree, cut, update, in_place=True)

    for depth in depths:
        plan = shape(n, depth)
        tree = build_tree(rows, plan.scales)
        cut = choose_cut(tree, score, plan.budget)
        update = 0.01 * torch.randn(read_cut(tree, cut).hidden.shape, generator=generator)
        r = update.shape[1]
        visited = r + sum(opened.shape[1] for opened in cut.opened)
        changed = changed_nodes(tree, add_to_cut(tree, cut, update))
        name = f"{depth} scales" if depth <= 4 else "binary"
        result = Result(n, name, plan.scales, plan.budget, r, visited, changed)
        yield result, partial(layer, tree, plan.budget, update)
    nodes = sum(counts.shape[1] for counts in tree.counts)
    step = naive(rows.hidden[0], plan.scales, update[0], owners(plan.scales, cut, n))
    yield Result(n, "naive", plan.scales, plan.budget, r, nodes, n), step


def show(results: list[Result], console: Console) -> bool:
    """Print the table; true if the tree's cost hardly grows where the naive way's does."""
    table = Table(title=f"choose + read + write, one layer, cut of about {ROWS:,} rows")
    for column in ("tokens", "way", "scales", "budget", "rows", "nodes read", "nodes changed", "ms"):
        table.add_column(column, justify="left" if column in ("way", "scales", "budget") else "right")
    for result in results:
        scales, budget = (short(numbers) for numbers in (result.scales, result.budget))
        numbers = [f"{value:,}" for value in (result.rows, result.read, result.changed)]
        table.add_row(f"{result.n:,}", result.way, scales, budget, *numbers, f"{result.milliseconds:.2f}")
        if result.way == "naive":
            table.add_section()
    console.print(table)
    times = {(result.way, result.n): result.milliseconds for result in results}
    good = True
    for way in dict.fromkeys(result.way for result in results):
        if (way, SMALL) in times and (way, LARGE) in times:
            growth = times[way, LARGE] / times[way, SMALL]
            bound = way in ("3 scales", "4 scales")
            good = good and (not bound or growth < LIMIT)
            rule = f" (must be below {LIMIT})" if bound else ""
            console.print(f"from {SMALL:,} to {LARGE:,} tokens, {way}: cost x {growth:.2f}{rule}")
    for result in results:
        if result.way != "naive" and result.changed > 2 * result.rows:
            console.print(f"{result.way} at {result.n:,}: {result.changed} nodes changed, over 2 x {result.rows} rows")
            good = False
    return good


def short(numbers: tuple[int, ...]) -> str:
    parts = [str(number) for number in numbers]
    return ", ".join(parts if len(parts) <= 4 else [*parts[:2], "...", *parts[-2:]])


def bench_core(
    width: Annotated[int, "features per token"] = 64,
    seconds: Annotated[float, "time spent on each measurement"] = 1.5,
    lengths: Annotated[tuple[int, ...], "tokens"] = LENGTHS,
    json: Annotated[Path | None, "write the numbers here too"] = None,
) -> int:
    """What a layer pays for the tree: choose + read + write, from 4K to 1M tokens, beside the naive way."""
    torch.set_num_threads(1)
    console = Console()
    with torch.no_grad(), console.status("building the trees, then going round"):
        steps = [step for n in lengths for step in prepare(n, (2, 3, 4, 99), width)]
        results = measure(steps, seconds)
    good = show(results, console)
    if json:
        json.write_text(dumps({"width": width, "results": [asdict(r) for r in results]}, indent=1))
    console.print("[green]as it must be[/]" if good else "[red]the tree's cost grows too fast[/]")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(call(bench_core, sys.argv[1:], "benchmarks/core.py"))
