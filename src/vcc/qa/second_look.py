"""A second look: the passages that a compressed reading points to are read again in full, each with its question.

The compressed layers have to find the place, by the nodes they score highest and by the spans they find; the exact
words are found here.
"""

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from vcc.core.cut import Cut, visited_nodes
from vcc.core.tree import SegmentTree
from vcc.data.answers import ScoredSpan, without_overlaps
from vcc.qa.windows import Bools, Found, Ints, Passage, WindowReader, room

NEAR = 0.3  # a node with less than this part of the best one's score has no chance
BEHIND = 8.0  # a span whose score is that far below no answer has no chance


def best_nodes(cut: Cut, tree: SegmentTree, places: Ints, top: int) -> list[list[ScoredSpan]]:
    """For each question the nodes with the largest scores at the last scale that has any, as spans of the document.

    `places` (n,) says where each token of the document stands in the tree.
    """
    depth = len(cut.scores) - 1
    if depth < 0:
        return [[] for _ in cut.kept[-1]]
    scores, best = cut.scores[depth].topk(min(top, cut.scores[depth].shape[1]), dim=1)
    begin = visited_nodes(tree, cut, depth).gather(1, best).cpu().numpy() * tree.scales[depth]
    first, last = np.searchsorted(places, begin), np.searchsorted(places, begin + tree.scales[depth]) - 1
    rows = zip(first.tolist(), last.tolist(), scores.tolist(), strict=True)
    return [[ScoredSpan(*one) for one in zip(*row, strict=True) if one[0] <= one[1]] for row in rows]


def passages_to_reread(
    spans: Sequence[Sequence[ScoredSpan]],
    nodes: Sequence[Sequence[ScoredSpan]],
    rooms: Sequence[int],
    n: int,
    looks: int,
) -> list[Passage]:
    """For each question the passages around its spans and its nodes, by turns, best first, at most `looks`; none where
    there is no room for them.

    The best of each in any case; others where they have a chance. The score of a span is its lead over no answer.
    """
    chosen: list[Passage] = []
    for question, (found, opened, size) in enumerate(zip(spans, nodes, rooms, strict=True)):
        likely = [span for i, span in enumerate(found) if i == 0 or span.score > -BEHIND]
        near = [node for node in opened if node.score >= NEAR * opened[0].score]
        mine: list[Passage] = []
        for span in (one for pair in zip_longest(likely, near) for one in pair if one is not None):
            if len(mine) == looks or not size:
                break
            if not any(passage.start <= span.first and span.last < passage.start + size for passage in mine):
                start = max(0, min((span.first + span.last - size) // 2, n - size))
                mine.append(Passage(question, start))
        chosen += mine
    return chosen


def look_again(
    windows: WindowReader,
    ids: Ints,
    questions: Sequence[Ints],
    spans: Sequence[Sequence[Found]],
    nodes: Sequence[Sequence[ScoredSpan]],
    looks: int,
    top: int,
    blank: Bools | None = None,
) -> tuple[list[list[Found]], int]:
    """The best spans of the passages around the spans and nodes that were found, and how many passages these are.

    A question that leaves less than a quarter of a window leaves too little to look at: what was found for it stays.
    """
    rooms = [room(question, windows.frame, windows.size) for question in questions]
    rooms = [size if size >= windows.size // 4 else 0 for size in rooms]
    chosen = passages_to_reread(spans, nodes, rooms, len(ids), looks)
    better = windows.look(ids, questions, chosen, rooms, top, blank)
    kept = [new if size else old for new, old, size in zip(better, spans, rooms, strict=True)]
    return [without_overlaps(some, top) for some in kept], len(chosen)
