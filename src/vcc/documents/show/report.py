"""Replies as one HTML page: answers on the left, linked to their highlights in the whole text on the right."""

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby

from vcc.documents.answer import Answer, Reply, excerpt
from vcc.documents.show.page import Block, blocks, cuts, render
from vcc.documents.text import Text


@dataclass(frozen=True)
class LinkedAnswer:
    """An answer, its sentence in three parts for the list, and the anchor of its span in the text."""

    answer: Answer
    name: str  # of the reply it belongs to
    anchor: str
    before: str
    inside: str
    after: str


@dataclass(frozen=True)
class ListedReply:
    """A reply in the list on the left."""

    reply: Reply
    linked: tuple[LinkedAnswer, ...]
    nearest: LinkedAnswer | None


@dataclass(frozen=True)
class MarkedPiece:
    """A piece of the text, the answers it belongs to, and those that begin with it."""

    text: str
    over: tuple[LinkedAnswer, ...] = ()
    begins: tuple[LinkedAnswer, ...] = ()


def report_html(text: Text, replies: Sequence[Reply], facts: Mapping[str, str]) -> str:
    """The page for `vcc review` (replies with a name and a group) and `vcc ask --html` (plain questions)."""
    anchors = (f"a{number}" for number in count())
    listed = []
    for reply in replies:
        linked = tuple(_linked(text, answer, reply.heading, next(anchors)) for answer in reply.answers)
        nearest = None
        if reply.nearest is not None and not reply.name:  # in a list of clauses, doubtful answers would hide the others
            nearest = _linked(text, reply.nearest, reply.heading, "")
        listed.append(ListedReply(reply, linked, nearest))
    all_linked = [one for entry in listed for one in entry.linked]
    return render(
        "report.html",
        text=text,
        facts={**facts, "answered": f"{sum(bool(entry.linked) for entry in listed)} of {len(listed)}"},
        groups=[(group, list(some)) for group, some in groupby(listed, key=lambda entry: entry.reply.group)],
        linked=all_linked,
        blocks=_blocks(text, all_linked),
    )


def _linked(text: Text, answer: Answer, name: str, anchor: str) -> LinkedAnswer:
    return LinkedAnswer(answer, name, anchor, *excerpt(text, answer, margin=90, longest=420))


def _blocks(text: Text, linked: Sequence[LinkedAnswer]) -> Iterator[tuple[Block, list[MarkedPiece]]]:
    """The whole text, one block per paragraph; answers may overlap, so a piece may belong to several."""
    linked = sorted(linked, key=lambda one: one.answer.start)
    starts = [one.answer.start for one in linked]
    longest = max((one.answer.end - one.answer.start for one in linked), default=0)
    for block in blocks(text, 1):
        near = linked[bisect.bisect_left(starts, block.start - longest) : bisect.bisect_left(starts, block.end)]
        edges = (edge for one in near for edge in (one.answer.start, one.answer.end))
        pieces = []
        for a, b in cuts(block.start, block.end, edges):
            shown = text.text[a:b] if b < block.end else text.text[a:b].rstrip()
            over = tuple(one for one in near if one.answer.start < b and a < one.answer.end) if shown else ()
            pieces.append(MarkedPiece(shown, over, tuple(one for one in over if one.answer.start == a)))
        yield block, pieces
