"""What each layer opened, over the length of a document.

`show/terminal.py` draws it as rows of cells, `show/heatmap.py` over the text, `show/figure.py` as a figure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vcc.documents.answer import Answer
from vcc.documents.show.inline import CELLS, answers_html, strips_html

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]

FINE = 16  # tokens of a stretch that spans few segments


@dataclass(frozen=True, eq=False)
class LayerView:
    """How finely each layer read each token of a document for one question.

    `openness` is 0 where a token stayed inside a segment of the coarsest scale, 1 where it was a row of its own, and
    between for the scales between. `scores` is the question's attention to the token's node.
    """

    question: str
    offsets: Ints  # (n, 2) first and last + 1 character of each token
    openness: Floats  # (L, n) from 0 to 1
    scores: Floats  # (L, n) not negative
    layers: tuple[str, ...]  # L names, e.g. "layer 4"
    scales: tuple[int, ...]  # tokens per row, coarse to fine, ending in 1
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

    def _repr_html_(self) -> str:
        cells = heat(self.openness, min(CELLS, len(self.offsets)))
        strips = zip(self.layers, self.rows.tolist(), cells.tolist(), strict=True)
        return answers_html(self.question, self.answers, strips_html(strips))

    @property
    def levels(self) -> Ints:
        """(L, n) the scale each token was read at, as an index into `scales`."""
        return np.rint(self.openness * (len(self.scales) - 1)).astype(np.int64)

    @property
    def rows(self) -> Ints:
        """(L,) how many rows of the document each layer saw."""
        return np.rint((1 / np.array(self.scales)[self.levels]).sum(1)).astype(np.int64)

    def token_at(self, character: int) -> int:
        """The token that holds a character, or the next one."""
        return int(np.clip(np.searchsorted(self.offsets[:, 1], character, side="right"), 0, len(self.offsets) - 1))


def openness_of(scales: tuple[int, ...], opened_nodes: Sequence[Ints], length: int) -> Floats:
    """(length,) the openness of each token, from the nodes that a cut opened at each scale but the last."""
    level = np.zeros(length)
    for depth, nodes in enumerate(opened_nodes):
        for node in np.asarray(nodes).tolist():
            level[node * scales[depth] : (node + 1) * scales[depth]] = depth + 1
    return level / (len(scales) - 1)


def binned(values: Floats, width: int) -> Floats:
    """(L, n) -> (L, width): means over equal stretches of the document; short documents repeat tokens."""
    n = values.shape[1]
    edges = np.arange(width + 1) * n // width
    sums = np.add.reduceat(values, edges[:-1], axis=1)
    return sums / np.maximum(np.diff(edges), 1)


def heat(values: Floats, width: int) -> Floats:
    """(L, width) between 0 and 1: how much of each stretch was opened, relative to the most opened stretch.

    Few of thousands of segments are open, so plain means would be invisible; the square root lifts them. Stretches
    no longer than a segment show openness unchanged.
    """
    means = binned(values, width)
    if values.shape[1] <= FINE * width:
        return means
    return np.sqrt(means / max(float(means.max()), 1e-12))


def closest_passages(view: LayerView, top: int) -> list[tuple[int, int, float]]:
    """(first token, last + 1, mean openness) of the most opened stretches, best first.

    Equally open stretches are ranked by score; those closed in every layer are left out.
    """
    mean, score = view.openness.mean(0), view.scores.mean(0)
    edges = (np.flatnonzero(np.diff(mean)) + 1).tolist()
    runs = zip([0, *edges], [*edges, len(mean)], strict=True)
    opened = [(a, b, float(mean[a])) for a, b in runs if mean[a] > 0]
    return sorted(opened, key=lambda run: (-run[2], -float(score[run[0] : run[1]].max()), run[0]))[:top]
