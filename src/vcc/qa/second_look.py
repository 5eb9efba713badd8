"""A second look: the passages that a first reading points to are read again in full, each with its question.

The place is found by the nodes that the compressed layers score highest, by the spans they find, and by the words that
a passage shares with the question (`vcc.qa.words`); the exact answer is found here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from vcc.core.cut import Cut, visited_nodes
from vcc.core.tree import SegmentTree
from vcc.data.answers import ScoredSpan, without_overlaps
from vcc.qa.windows import Bools, ChosenPassage, Found, Ints, WindowReader, room

NEAR = 0.3  # a node with less than this part of the best one's score has no chance
ALIKE = 0.5  # nor a piece that matches the question's words less than this part of the best one
BEHIND = 8.0  # nor a span whose score is that far below no answer


@dataclass(frozen=True)
class Looks:
    """How many passages are read again for a question, by leads over "no answer": that of the best span in the first
    reading, then that of the best one in the passages."""

    most: int
    few: int = 3  # at first
    one_below: float = -math.inf  # a first reading that sees nothing like an answer: but one look at first
    none_below: float = -math.inf  # or none at all
    hopeless: float = -6.0  # no more than these few: nothing like an answer is in sight
    clear: float = 8.0  # nor where an answer leads clearly
    weak: bool = False  # whether passages are read, too, to which hardly anything points

    def rounds(self, found: Sequence[Found]) -> tuple[int, int, int]:
        """Passages that are read together, then more while the question is undecided, from what was found first."""
        lead = found[0].score if found else 0.0
        if lead < self.none_below:
            return 0, 0, 0
        return (1, self.few - 1, self.most) if lead < self.one_below else (self.few, self.most, 0)

    def undecided(self, found: Sequence[Found]) -> bool:
        """Whether more passages may change what is thought of a question."""
        return not found or self.hopeless < max(span.score for span in found) < self.clear


def for_short_texts(most: int) -> Looks:
    """For a text that a few more passages hold whole: what is left out by a guess is soon read."""
    return Looks(most, 6, weak=True)


def for_clauses(most: int) -> Looks:
    """For the questions that a model knows by heart: its first reading tells well where there is nothing, and where a
    contract has such a clause, it often has it at several places."""
    return Looks(min(most, 6), 2, one_below=-5.0, none_below=-9.0, hopeless=0.0, clear=math.inf)


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


def with_a_chance(
    spans: Sequence[ScoredSpan], nodes: Sequence[ScoredSpan], matches: Sequence[ScoredSpan]
) -> list[list[ScoredSpan]]:
    """Of what points to passages, each best first: the best in any case, the others where they have a chance. The score
    of a span is its lead over no answer."""
    return [
        [span for i, span in enumerate(spans) if i == 0 or span.score > -BEHIND],
        [node for node in nodes if node.score >= NEAR * nodes[0].score],
        [match for match in matches if match.score >= ALIKE * matches[0].score],
    ]


def passages_to_reread(pointers: Sequence[Sequence[ScoredSpan]], size: int, n: int, looks: int) -> list[int]:
    """Where the passages of `size` tokens start that the pointers of a question, several lists of spans, point to: by
    turns, best first, at most `looks` of them."""
    starts: list[int] = []
    for span in (one for turn in zip_longest(*pointers) for one in turn if one is not None):
        if len(starts) == looks or not size:
            break
        if not any(start <= span.first and span.last < start + size for start in starts):
            starts.append(max(0, min((span.first + span.last - size) // 2, n - size)))
    return starts


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
    """The best spans of the passages around the spans, nodes and matching words that were found, and how many passages
    these are: as many as `looks` says of each question. What was found for a question that gets none stays.

    A question that leaves less than a quarter of a window leaves too little to look at.
    """
    rooms = [room(question, windows.frame, windows.size) for question in questions]
    rooms = [size if size >= windows.size // 4 else 0 for size in rooms]
    waiting = [
        passages_to_reread(pointers if own.weak else with_a_chance(*pointers), size, len(ids), own.most)
        for *pointers, size, own in zip(spans, nodes, matches, rooms, looks, strict=True)
    ]
    better: list[list[Found]] = [[] for _ in questions]
    number = 0  # of passages read
    rounds = [own.rounds(found) for own, found in zip(looks, spans, strict=True)]
    for some in zip(*rounds, strict=True):
        chosen = [ChosenPassage(i, start) for i, starts in enumerate(waiting) for start in starts[: some[i]]]
        if not chosen:
            continue
        for i, found in enumerate(windows.look(ids, questions, chosen, rooms, top, blank)):
            better[i] += found
            waiting[i] = waiting[i][some[i] :] if looks[i].undecided(better[i]) else []
        number += len(chosen)
    return [without_overlaps(new or old, top) for new, old in zip(better, spans, strict=True)], number
