"""A signal of 512 numbers as 79 segment means: fine where it changes, coarse elsewhere (the paper's figure 7).

    python examples/sparse_signal.py --out docs/signal.png

Tree and cut are the method's; the score of a node is the squared error of closing it.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from vcc import Rows, build_tree, choose_cut, read_cut

N = 512
SCALES = tuple(2**i for i in range(9, -1, -1))  # 512, 256, ..., 1
BUDGET = (1, 2, 4, 6, 9, 12, 14, 15, 15)  # each opened node adds one: 1 + 78 = 79


def signal() -> Tensor:
    """Slow waves, with two fast stretches and one step."""
    t = torch.arange(N, dtype=torch.float64) / N
    slow = 0.6 * torch.sin(2 * torch.pi * 1.1 * t) + 0.3 * torch.cos(2 * torch.pi * 2.3 * t)
    fast = torch.exp(-(((t - 0.22) / 0.03) ** 2)) * torch.sin(2 * torch.pi * 60 * t)
    bump = 0.8 * torch.exp(-(((t - 0.63) / 0.02) ** 2)) * torch.cos(2 * torch.pi * 45 * t)
    return slow + fast + bump + 0.7 * (t > 0.85)


def approximate(values: Tensor, budget: tuple[int, ...]) -> Rows:
    """The cut: means, how many numbers each stands for, and where."""
    rows = Rows(values[None, :, None], torch.ones(1, N), torch.arange(N, dtype=torch.float64)[None])
    sums, squares = (torch.cat([torch.zeros(1), one.cumsum(0)]) for one in (values, values**2))

    def error(nodes: Rows) -> Tensor:
        """Of replacing each node's numbers by their mean (1, nodes)."""
        length = nodes.counts.long()
        first = (nodes.positions - (nodes.counts - 1) / 2).round().long()
        inside = [one[first + length] - one[first] for one in (sums, squares)]
        return inside[1] - inside[0] ** 2 / length

    tree = build_tree(rows, SCALES)
    return read_cut(tree, choose_cut(tree, error, budget))


def spread(cut: Rows) -> tuple[Tensor, Tensor]:
    """The approximation at every place, and the length of the segment that gives it, both (N,)."""
    values, lengths = torch.empty(N, dtype=torch.float64), torch.empty(N)
    for mean, count, position in zip(cut.hidden[0, :, 0], cut.counts[0], cut.positions[0], strict=True):
        first = round(float(position - (count - 1) / 2))
        values[first : first + int(count)] = mean
        lengths[first : first + int(count)] = count
    return values, lengths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/signal.png"))
    out: Path = parser.parse_args().out
    values = signal()
    cut = approximate(values, BUDGET)
    found, lengths = spread(cut)
    number = cut.hidden.shape[1]
    even = values.unflatten(0, (64, 8)).mean(1).repeat_interleave(8)
    errors = [float((values - one).norm() / values.norm()) for one in (found, even)]
    print(f"{number} of {N} components: error {errors[0]:.1%}; 64 segments of equal length: {errors[1]:.1%}")

    figure = Figure(figsize=(9, 4.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    above.plot(values, color="#adb5bd", lw=3, label=f"signal, {N} numbers")
    above.step(
        range(N), found, where="mid", color="#c1121f", lw=1.2, label=f"{number} segment means, error {errors[0]:.1%}"
    )
    above.legend(loc="lower left", fontsize=8, frameon=False)
    below.fill_between(range(N), lengths, step="mid", color="#c1121f", alpha=0.35, lw=0)
    below.set_yscale("log", base=2)
    below.set_ylim(0.9, 128)
    below.set_yticks([1, 4, 16, 64], ["1", "4", "16", "64"])
    below.set_ylabel("tokens\na segment", fontsize=8)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main()
