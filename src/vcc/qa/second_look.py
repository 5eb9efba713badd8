"""The second look: the passages found by the first reading are read again, uncompressed, each with its question.

The place is found by the nodes that the compressed layers score highest, by the spans they find, and by the words that
a passage shares with the question (`vcc.qa.words`); the second look finds the exact words.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from vcc.core.cut import Cut, visited_nodes
from vcc.core.tree import SegmentTree
from vcc.data.answers import ScoredSpan, without_overlaps
from vcc.qa.agreement import View, agreed
from vcc.qa.windows import Bools, ChosenPassage, Found, Ints, WindowReader, room

NEAR = 0.3  # nodes with less than this share of the best score are skipped
ALIKE = 0.5  # and pieces with less than this share of the best word match
BEHIND = 8.0  # and spans whose score is this far below "no answer"


@dataclass(frozen=True)
class Looks:
    """When to stop reading passages again for a question: they are read one by one, best first, until a rule says that
    further ones will not change the answer. A lead is that over "no answer"."""

    most: int
    few: int = 3  # passages that are read even if they are hopeless
    hopeless: float = -6.0  # stop after these few passages if the best lead of the recent ones is below this
    recent: int = 1000  # passages: all, unless a text may have several answers
    least: int = 3  # passages that are read even if the answer is clear: one for each kind of pointer
    clear: float = 8.0  # stop if the best lead is above this
    still_clear: float = 8.0  # after each passage but the first the bar sinks by 2, down to this
    weak: bool = False  # whether passages with little evidence are read too
    share: float = 1.0  # of the room in a window that a passage fills
    agree: bool = True  # whether a place is judged by all passages that hold it, or by the one that likes it best

    def undecided(self, views: Sequence[View]) -> bool:
        """Whether to read another passage after these."""
        read, leads = len(views), [span.score for view in views for span in view.spans]
        if not leads:
            return True
        best, clear = max(leads), max(self.clear - 2.0 * (read - 1), self.still_clear)
        if best >= clear:
            return read < self.least
        recent = [span.score for view in views[-self.recent :] for span in view.spans]
        return read < self.few or max(recent, default=-math.inf) > self.hopeless

    def judged(self, views: Sequence[View]) -> list[Found]:
        """The spans of all passages with their final scores."""
        return agreed(views) if self.agree else [span for view in views for span in view.spans]


def for_short_texts(most: int) -> Looks:
    """For a text that a few more passages cover: reading the rest costs little. After five passages, any lead is
    clear."""
    return Looks(most, 6, least=1, still_clear=0.0, weak=True)


def for_clauses(most: int, several: bool = True) -> Looks:
    """For questions that the model was trained on: two passages without an answer end the search. A contract often has
    a clause at several places, so if `several` answers are wanted, a clear one does not end it, but five passages
    without a further one do."""
    search = Looks(most, 2, hopeless=-1.0, recent=5, least=1, still_clear=4.0, agree=False)
    return replace(search, clear=math.inf) if several else search


def best_nodes(cut: Cut, tree: SegmentTree, places: Ints, top: int) -> list[list[ScoredSpan]]:
    """Return, per question, the best-scored nodes of the finest scale with scores, as spans of the document.

    `places` (n,) is the index of each token of the document in the tree.
    """
    depth = len(cut.scores) - 1
    if depth < 0:
        return [[] for _ in cut.kept[-1]]
    scores, best = cut.scores[depth].topk(min(top, cut.scores[depth].shape[1]), dim=1)
    begin = visited_nodes(tree, cut, depth).gather(1, best).cpu().numpy() * tree.scales[depth]
    first, last = np.searchsorted(places, begin), np.searchsorted(places, begin + tree.scales[depth]) - 1
    rows = zip(first.tolist(), last.tolist(), scores.tolist(), strict=True)
    return [[ScoredSpan(*one) for one in zip(*row, strict=True) if one[0] <= one[1]] for row in rows]


def with_a_chance(
    spans: Sequence[ScoredSpan], nodes: Sequence[ScoredSpan], matches: Sequence[ScoredSpan]
) -> list[list[ScoredSpan]]:
    """Filter each list of pointers, best first: keep the best, and the others if they are close enough. The score of a
    span is its lead over "no answer"."""
    return [
        [span for i, span in enumerate(spans) if i == 0 or span.score > -BEHIND],
        [node for node in nodes if node.score >= NEAR * nodes[0].score],
        [match for match in matches if match.score >= ALIKE * matches[0].score],
    ]


def passages_to_reread(pointers: Sequence[Sequence[ScoredSpan]], size: int, n: int, looks: int) -> list[int]:
    """Return the starts of at most `looks` passages of `size` tokens around a question's pointers. The lists of spans
    take turns, best first. Passages may overlap: a second view of a place, with other text around it, is better."""
    starts: list[int] = []
    for span in (one for turn in zip_longest(*pointers) for one in turn if one is not None):
        if len(starts) == looks or not size:
            break
        if not any(start <= span.first and span.last < start + size for start in starts):
            starts.append(max(0, min((span.first + span.last - size) // 2, n - size)))
    return starts


def every_passage(n: int, size: int) -> list[int]:
    """Return the starts of evenly spaced passages of `size` tokens that cover n tokens. Neighbours share at least
    two fifths of a passage: with a quarter, more answers are cut or lack their context."""
    steps = -(-max(n - size, 0) // max(size * 3 // 5, 1))
    return [round(i * (n - size) / steps) for i in range(steps + 1)] if steps else [0]


def room_for_passage(question: Ints, windows: WindowReader) -> int:
    """The tokens of a passage that fit into a window with a question; 0 if they are less than a quarter of it."""
    size = room(question, windows.frame, windows.size)
    return size if size >= windows.size // 4 else 0


def look_again(
    windows: WindowReader,
    ids: Ints,
    questions: Sequence[Ints],
    spans: Sequence[Sequence[Found]],
    nodes: Sequence[Sequence[ScoredSpan]],
    matches: Sequence[Sequence[ScoredSpan]],
    looks: Sequence[Looks],
    top: int,
    blank: Bools | None = None,
) -> tuple[list[list[Found]], int]:
    """Return the best spans of the passages around spans, nodes and matching words, and the number of passages. `looks`
    sets their number per question. A question without passages keeps its spans. Passages that were read ahead and that
    the rules would not have read are left out: the answers are the same on every device.

    A question that leaves less than a quarter of a window is not looked at again.
    """
    rooms = [int(room_for_passage(q, windows) * own.share) for q, own in zip(questions, looks, strict=True)]
    starts = [
        passages_to_reread(pointers if own.weak else with_a_chance(*pointers), size, len(ids), own.most)
        for *pointers, size, own in zip(spans, nodes, matches, rooms, looks, strict=True)
    ]
    views: list[list[View]] = [[] for _ in questions]
    number = 0  # of passages read
    for read in range(0, max(map(len, starts), default=0), windows.ahead):
        chosen = [
            ChosenPassage(i, start, rooms[i])
            for i, (some, own) in enumerate(zip(starts, looks, strict=True))
            if own.undecided(views[i])
            for start in some[read : read + windows.ahead]
        ]
        if not chosen:
            break
        for passage, found in zip(chosen, windows.look_at_each(ids, questions, chosen, top, blank), strict=True):
            if looks[passage.question].undecided(views[passage.question]):
                views[passage.question].append(View(passage.start, passage.start + passage.size, found))
        number += len(chosen)
    judged = [own.judged(some) for own, some in zip(looks, views, strict=True)]
    return [without_overlaps(new or old, top) for new, old in zip(judged, spans, strict=True)], number
