"""Replies as one HTML page: the answers on the left, each a link to its lit-up place in the whole text on the right."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count, groupby

from vcc.documents.answers import Answer, Reply, excerpt, place_of
from vcc.documents.show.page import blocks, cuts, facts_html, page
from vcc.documents.text import BEGINNING, Document

STYLE = """
header { padding: 1.1rem 1.6rem .9rem; border-bottom: 1px solid var(--line); background: var(--card); }
.places { position: relative; height: 14px; margin-top: .8rem; background: var(--line); border-radius: 3px; }
.places a { position: absolute; top: 0; bottom: 0; width: 4px; margin-left: -2px; border-radius: 2px;
  background: rgb(var(--heat)); }
.places a:hover { outline: 2px solid var(--ink); }
main { display: grid; grid-template-columns: minmax(0, 11fr) minmax(0, 12fr); }
section { padding: 0 1.6rem 3rem; }
@media screen and (min-width: 60rem) { html, body { height: 100%; } body { display: flex; flex-direction: column; }
  main { flex: 1; min-height: 0; } section { overflow-y: auto; } .text { border-left: 1px solid var(--line); } }
@media (max-width: 60rem) { main { display: block; } .text { border-top: 1px solid var(--line); } }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .65rem .5rem .65rem 0; border-top: 1px solid var(--line); }
th { font-weight: 600; width: 24%; padding-right: 1rem; }
td.score { width: 3.6rem; text-align: right; padding-right: 0; font-variant-numeric: tabular-nums; }
tr:first-child th { padding-top: 1.4rem; border: 0; } .group th { padding-top: 1.8rem; border: 0; }
.more td, .more th { border-top: 0; padding-top: 0; } .more th { width: 1.2rem; }
.none th, .none td { color: var(--soft); font-weight: 400; }
.quote { color: var(--soft); } .quote mark { color: var(--lit-ink); }
.where { display: block; font-size: .85rem; margin-top: .15rem; }
.text a[id] { scroll-margin-top: 32vh; } .head { font-weight: 600; } .text .block:first-child { margin-top: 1.4rem; }
mark { background: var(--lit); color: var(--lit-ink); border-radius: 2px; padding: .06em 0; }
.text mark.on { background: rgb(var(--heat)); color: #1d1400; box-shadow: 0 0 0 3px rgb(var(--heat) / .35); }
.bar { display: block; height: 3px; border-radius: 2px; background: var(--line); margin-top: .3rem; }
.bar i { display: block; height: 100%; border-radius: 2px; background: var(--good); }
"""

# Without JavaScript the links still jump; with it, all pieces of the chosen answer light up.
SCRIPT = """
function light() {
  const id = location.hash.slice(1);
  document.querySelectorAll(".text mark").forEach(m => m.classList.toggle("on", m.dataset.of.split(" ").includes(id)));
}
addEventListener("hashchange", light); light();
"""


@dataclass(frozen=True)
class Place:
    """An answer with the name its place has on the page."""

    anchor: str
    name: str
    answer: Answer


def report_html(document: Document, replies: Sequence[Reply], facts: Mapping[str, str]) -> str:
    """The page for `vcc review` (replies with a name and a group) and `vcc ask --html` (plain questions)."""
    number = count()
    placed = [[Place(f"a{next(number)}", reply.heading, answer) for answer in reply.answers] for reply in replies]
    places = [place for several in placed for place in several]
    summary = {**facts, "answered": f"{sum(map(bool, placed))} of {len(replies)}"}
    ticks = "".join(
        f'<a href="#{place.anchor}" style="left:{100 * place.answer.start / len(document.text):.2f}%"'
        f' title="{escape(place.name)}"></a>'
        for place in places
    )
    body = (
        f"<header><h1>{escape(document.title)}</h1>{facts_html(document, summary)}"
        f'<div class="places">{ticks}</div></header>\n<main>\n'
        f"<section><table>{''.join(_rows(document, replies, placed))}</table></section>\n"
        f'<section class="text">{"".join(_blocks(document, places))}</section>\n</main>'
    )
    return page(document.title, STYLE, body, SCRIPT)


def _rows(document: Document, replies: Sequence[Reply], placed: Sequence[Sequence[Place]]) -> Iterator[str]:
    for group, members in groupby(zip(replies, placed, strict=True), key=lambda pair: pair[0].group):
        if group:
            yield f'<tr class="group"><th colspan="3"><h2>{escape(group)}</h2></th></tr>\n'
        for reply, places in members:
            heading = f"<th>{escape(reply.heading)}</th>"
            if not reply.name:  # a whole question takes a line of its own
                yield f'<tr><th colspan="3">{escape(reply.heading)}</th></tr>\n'
                heading = "<th></th>"
            style = "" if reply.name else "more "
            if not places:
                nothing = _nearest(document, reply) or "no answer found"
                yield f'<tr class="{style}none">{heading}<td colspan="2">{nothing}</td></tr>\n'
            for place in places:
                yield f'<tr class="{style}">{heading}{_cells(document, place)}</tr>\n'
                heading, style = "<th></th>", "more "


def _nearest(document: Document, reply: Reply) -> str:
    """For a question asked by a person; in a list of clauses it would hide what was found."""
    if reply.nearest is None or reply.name:
        return ""
    before, inside, after = (escape(piece) for piece in excerpt(document, reply.nearest, margin=90, longest=420))
    return f"no sure answer; the nearest, {escape(place_of(document, reply.nearest))}: {before}<u>{inside}</u>{after}"


def _cells(document: Document, place: Place) -> str:
    before, inside, after = (escape(piece) for piece in excerpt(document, place.answer, margin=90, longest=420))
    where, width = escape(place_of(document, place.answer)), 100 * min(max(place.answer.score, 0), 1)
    return (
        f'<td class="quote">{before}<mark>{inside}</mark>{after}'
        f'<a class="where" href="#{place.anchor}">{where} →</a></td>'
        f'<td class="score">{place.answer.score:.2f}<span class="bar"><i style="width:{width:.0f}%"></i></span></td>'
    )


def _blocks(document: Document, places: Sequence[Place]) -> Iterator[str]:
    """The whole text, a paragraph a block; answers may overlap, so a lit-up piece names all those it is part of."""
    places = sorted(places, key=lambda place: place.answer.start)
    starts = [place.answer.start for place in places]
    longest = max((place.answer.end - place.answer.start for place in places), default=0)
    for label, start, end in blocks(document, 1):
        headed = bool(label) and document.text.startswith(label, start)  # the heading is already there, in the text
        if label and not headed and label != BEGINNING:
            yield f'<h2 class="part">{escape(label)}</h2>\n'
        near = places[bisect.bisect_left(starts, start - longest) : bisect.bisect_left(starts, end)]
        pieces = []
        for a, b in cuts(start, end, (edge for place in near for edge in (place.answer.start, place.answer.end))):
            piece = escape(document.text[a:b] if b < end else document.text[a:b].rstrip())
            over = [place for place in near if place.answer.start < b and a < place.answer.end]
            if over and piece:
                anchors = "".join(f'<a id="{place.anchor}"></a>' for place in over if place.answer.start == a)
                of, names = " ".join(place.anchor for place in over), ", ".join(place.name for place in over)
                piece = f'{anchors}<mark data-of="{of}" title="{escape(names)}">{piece}</mark>'
            pieces.append(piece)
        yield f'<div class="block{" head" if headed else ""}">{"".join(pieces)}</div>\n'
