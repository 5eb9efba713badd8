"""The heat map over the document's text, as one HTML page.

Neighbouring tokens that every layer read at the same scale share one element, and elements with the same history share
one class. Choosing a layer rewrites one small style sheet, so a whole book stays responsive.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten

import numpy as np

from vcc.documents.answer import Answer
from vcc.documents.layer_view import LayerView, heat
from vcc.documents.show.page import Block, blocks, cuts, render
from vcc.documents.text import Text

WIDTH = 1200  # columns of the overview strips
BLOCK = 1500  # characters laid out together


@dataclass(frozen=True)
class ShadedPiece:
    """A piece of the text with one history; `begins` marks the first piece of the answer."""

    text: str
    history: int
    answer: bool
    begins: bool


def heatmap_html(text: Text, view: LayerView, facts: Mapping[str, str]) -> str:
    """The page for `vcc see --html`: one overview strip per layer, and the text shaded by how finely it was read."""
    starts, codes, histories = runs(view)
    width = min(WIDTH, len(view.offsets))
    strips = [heat(view.openness.mean(0, keepdims=True), width)[0], *heat(view.openness, width)]
    best = view.answers[0] if view.answers else None
    return render(
        "heatmap.html",
        text=text,
        view=view,
        facts=facts,
        best=best,
        best_shown=best and shorten(best.text, 110, placeholder=" …"),
        best_left=best and 100 * view.token_at(best.start) / len(view.offsets),
        strips=[("all layers", ""), *zip(view.layers, (f"{seen:,} rows" for seen in view.rows), strict=True)],
        blocks=_blocks(text, view, starts, codes, best),
        data={
            "tokens": len(view.offsets),
            "finest": len(view.scales) - 1,
            "histories": histories,
            "strips": ["".join(f"{int(value * 255):02x}" for value in strip) for strip in strips],
        },
    )


def runs(view: LayerView) -> tuple[list[int], list[int], list[str]]:
    """Stretches with one history: their first tokens, the numbers of their histories, and the distinct histories.

    A history is a string with one digit per layer: the scale at which the stretch was read.
    """
    levels = view.levels  # (L, n)
    changes = np.flatnonzero((levels[:, 1:] != levels[:, :-1]).any(0)) + 1
    starts = [0, *changes.tolist()]
    spelled = ["".join(map(str, levels[:, start])) for start in starts]
    histories = sorted(set(spelled))
    number = {history: index for index, history in enumerate(histories)}
    return starts, [number[history] for history in spelled], histories


def _blocks(
    text: Text, view: LayerView, starts: Sequence[int], codes: Sequence[int], best: Answer | None
) -> Iterator[tuple[Block, int, list[ShadedPiece]]]:
    """The text in blocks, each with the number of its first token and its pieces.

    A run owns the characters from its first token to the next run's.
    """
    edges = [0, *(int(view.offsets[start, 0]) for start in starts[1:]), len(text.text)]
    first, last = (best.start, best.end) if best else (-1, -1)
    run = 0
    for block in blocks(text, BLOCK):
        while edges[run + 1] <= block.start:
            run += 1
        after = run
        while edges[after] < block.end:
            after += 1
        pieces = []
        for a, b in cuts(block.start, block.end, [*edges[run:after], first, last]):
            while edges[run + 1] <= a:
                run += 1
            pieces.append(ShadedPiece(text.text[a:b], codes[run], first <= a < last, a == first))
        yield block, view.token_at(block.start), pieces
