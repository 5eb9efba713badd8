"""Replies as one HTML page: the answers on the left, each a link to its lit-up place in the whole text on the right."""

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby

from vcc.documents.answers import Answer, Reply, excerpt, place_of
from vcc.documents.show.page import Block, blocks, cuts, render
from vcc.documents.text import Text


@dataclass(frozen=True)
class Place:
    """An answer and how it is quoted; `anchor` is what its place on the page is linked by."""

    answer: Answer
    name: str  # of the reply it belongs to
    anchor: str
    where: str
    before: str
    inside: str
    after: str


@dataclass(frozen=True)
class Entry:
    """A reply in the list on the left."""

    reply: Reply
    places: tuple[Place, ...]
    nearest: Place | None


@dataclass(frozen=True)
class Piece:
    """A piece of the text, the answers it is part of, and those of them that begin with it."""

    text: str
    over: tuple[Place, ...] = ()
    begins: tuple[Place, ...] = ()


def report_html(text: Text, replies: Sequence[Reply], facts: Mapping[str, str]) -> str:
    """The page for `vcc review` (replies with a name and a group) and `vcc ask --html` (plain questions)."""
    anchors = (f"a{number}" for number in count())
    entries = []
    for reply in replies:
        places = tuple(_place(text, answer, reply.heading, next(anchors)) for answer in reply.answers)
        nearest = None
        if reply.nearest is not None and not reply.name:  # in a list of clauses it would hide what was found
            nearest = _place(text, reply.nearest, reply.heading, "")
        entries.append(Entry(reply, places, nearest))
    all_places = [place for entry in entries for place in entry.places]
    return render(
        "report.html",
        text=text,
        facts={**facts, "answered": f"{sum(bool(entry.places) for entry in entries)} of {len(entries)}"},
        groups=[(group, list(some)) for group, some in groupby(entries, key=lambda entry: entry.reply.group)],
        places=all_places,
        blocks=_blocks(text, all_places),
    )


def _place(text: Text, answer: Answer, name: str, anchor: str) -> Place:
    return Place(answer, name, anchor, place_of(text, answer), *excerpt(text, answer, margin=90, longest=420))


def _blocks(text: Text, places: Sequence[Place]) -> Iterator[tuple[Block, list[Piece]]]:
    """The whole text, a paragraph a block; answers may overlap, so a piece names all those it is part of."""
    places = sorted(places, key=lambda place: place.answer.start)
    starts = [place.answer.start for place in places]
    longest = max((place.answer.end - place.answer.start for place in places), default=0)
    for block in blocks(text, 1):
        near = places[bisect.bisect_left(starts, block.start - longest) : bisect.bisect_left(starts, block.end)]
        edges = (edge for place in near for edge in (place.answer.start, place.answer.end))
        pieces = []
        for a, b in cuts(block.start, block.end, edges):
            shown = text.text[a:b] if b < block.end else text.text[a:b].rstrip()
            over = tuple(place for place in near if place.answer.start < b and a < place.answer.end) if shown else ()
            pieces.append(Piece(shown, over, tuple(place for place in over if place.answer.start == a)))
        yield block, pieces
