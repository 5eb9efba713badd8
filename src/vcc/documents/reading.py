"""What each layer read closely over the length of a document: the value, and its picture in the terminal.

`heatmap_page` draws it over the document's text, `heatmap_png` as a figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from vcc.documents.answers import Answer
from vcc.documents.show.terminal import print_indented
from vcc.documents.text import Document

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]

FINE = 16  # tokens of a stretch that hardly mixes segments
GLOW = ((0.0, "#6b5a3a"), (0.5, "#f59e0b"), (1.0, "#f43f2f"))  # from a little to most, on light and dark terminals


@dataclass(frozen=True, eq=False)
class Reading:
    """How finely each layer read each token of a document for one question.

    `openness` is 0 where a token stayed inside a segment of the coarsest scale, 1 where it was a row of its own, and
    between for the scales between. `scores` says how much the question attended to the token's node.
    """

    question: str
    offsets: Ints  # (n, 2) first and last + 1 character of each token
    openness: Floats  # (L, n) from 0 to 1
    scores: Floats  # (L, n) not negative
    layers: tuple[str, ...]  # L names, e.g. "layer 4"
    scales: tuple[int, ...]  # tokens a row, coarse to fine, ending in 1
    answers: tuple[Answer, ...] = ()  # best first

    def __post_init__(self) -> None:
        shape = (len(self.layers), len(self.offsets))
        if self.openness.shape != shape or self.scores.shape != shape or 0 in shape:
            raise ValueError(
                f"openness {self.openness.shape} and scores {self.scores.shape} must both be (layers, tokens) = {shape}"
            )
        if self.openness.min() < 0 or self.openness.max() > 1:
            raise ValueError(f"openness must lie in 0..1, got {self.openness.min()}..{self.openness.max()}")
        if len(self.scales) < 2 or self.scales[-1] != 1:
            raise ValueError(f"scales must be coarse to fine and end in 1, got {self.scales}")

    @property
    def levels(self) -> Ints:
        """(L, n) the scale each token was read at, as a place in `scales`."""
        return np.rint(self.openness * (len(self.scales) - 1)).astype(np.int64)

    @property
    def rows(self) -> Ints:
        """(L,) how many rows of the document each layer saw."""
        return np.rint((1 / np.array(self.scales)[self.levels]).sum(1)).astype(np.int64)

    def token_at(self, character: int) -> int:
        """The token that holds a character, or the next one."""
        return int(np.clip(np.searchsorted(self.offsets[:, 1], character, side="right"), 0, len(self.offsets) - 1))


def openness_of(scales: tuple[int, ...], opened_nodes: Sequence[Ints], length: int) -> Floats:
    """(length,) the openness of every token, from the nodes a cut opened at each scale but the last."""
    level = np.zeros(length)
    for depth, nodes in enumerate(opened_nodes):
        for node in np.asarray(nodes).tolist():
            level[node * scales[depth] : (node + 1) * scales[depth]] = depth + 1
    return level / (len(scales) - 1)


def binned(values: Floats, width: int) -> Floats:
    """(L, n) -> (L, width): the mean over equal stretches of the document; short documents repeat their tokens."""
    n = values.shape[1]
    edges = np.arange(width + 1) * n // width
    sums = np.add.reduceat(values, edges[:-1], axis=1)
    return sums / np.maximum(np.diff(edges), 1)


def heat(values: Floats, width: int) -> Floats:
    """(L, width) between 0 and 1: how much of each stretch was opened, relative to the most opened stretch.

    A few segments of thousands are open, so plain means would be invisible: the square root lifts them. Where a
    stretch is no longer than a segment, openness is shown as it is.
    """
    means = binned(values, width)
    if values.shape[1] <= FINE * width:
        return means
    return np.sqrt(means / max(float(means.max()), 1e-12))


def passages(reading: Reading, top: int) -> list[tuple[int, int, float]]:
    """(first token, last + 1, mean openness) of the stretches that the layers opened most, best first.

    Stretches opened alike are ranked by their score; those that stayed closed in every layer are not among them.
    """
    mean, score = reading.openness.mean(0), reading.scores.mean(0)
    edges = (np.flatnonzero(np.diff(mean)) + 1).tolist()
    runs = zip([0, *edges], [*edges, len(mean)], strict=True)
    opened = [(a, b, float(mean[a])) for a, b in runs if mean[a] > 0]
    return sorted(opened, key=lambda run: (-run[2], -float(score[run[0] : run[1]].max()), run[0]))[:top]


def print_heatmap(console: Console, reading: Reading) -> None:
    """A row of coloured cells a layer, and above them where the answers are."""
    margin = max(len(name) for name in reading.layers) + 2
    width = max(min(console.width - margin - 16, 160), 10)
    console.print(Text(reading.question, style="bold cyan"))
    marks = [" "] * width
    for answer in reading.answers:
        marks[reading.token_at(answer.start) * width // len(reading.offsets)] = "▼"
    if reading.answers:
        console.print(Text(" " * margin + "".join(marks).rstrip(), style="bold green"))
    for name, row, seen in zip(reading.layers, heat(reading.openness, width), reading.rows, strict=True):
        line = Text().append(name.ljust(margin), style="dim")
        for value in row:
            if console.color_system and value:
                line.append("█", style=_glow(float(value)))
            else:
                line.append("·░▒▓█"[int(np.ceil(value * 4))], style="" if value else "dim")
        console.print(line.append(f"  {seen:,} rows", style="dim"))
    console.print(Text(f"{' ' * margin}0{len(reading.offsets):>{width - 1},} tokens", style="dim"))


def print_passages(console: Console, document: Document, reading: Reading, top: int = 5) -> None:
    """The sentences that were read most closely; the share is how finely, on the mean over the layers."""
    shown: list[tuple[int, int]] = []
    for first, last, share in passages(reading, 20 * top):
        score = reading.scores[:, first:last].mean(0)
        peak = first + int(np.flatnonzero(score == score.max()).mean())  # the middle of the best node
        start, end = document.sentence_around(*map(int, reading.offsets[peak]))
        if len(shown) < top and all(end <= a or b <= start for a, b in shown):
            shown.append((start, end))
            text = Text(" ".join(document.text[start:end].split()))
            text.truncate(3 * (console.width - 6), overflow="ellipsis")
            console.print(
                Text.assemble((f"{share:4.0%}", "bold yellow"), (f"  {document.part_at(start).label}", "dim"))
            )
            print_indented(console, text, 6)


def _glow(value: float) -> str:
    """The colour for a heat from 0 to 1, as #rrggbb."""
    stops = np.array([stop for stop, _ in GLOW])
    colours = np.array([[int(code[i : i + 2], 16) for i in (1, 3, 5)] for _, code in GLOW])
    red, green, blue = (int(np.interp(value, stops, colours[:, channel])) for channel in range(3))
    return f"#{red:02x}{green:02x}{blue:02x}"
