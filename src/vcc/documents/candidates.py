"""Candidate spans of a question, before they become answers. These rules hold for any text:

- A span that cannot be what is asked for, such as a number, falls behind (`vcc.documents.short`).
- A span that only repeats words of the question does not answer it: it is a heading, or a part of its sentence.
- A span that begins inside brackets ends with them, and one that cuts the name of a host holds the whole name.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from vcc.documents.short import Edges, Kind, expressions, kind_asked, may_answer, shortened

LOST, VAGUE = 6.0, 2.0  # logits subtracted from a span that cannot be what is asked for, or only in other words
REACH = 200  # characters around a span in which brackets and names are searched

WORD = re.compile(r"[^\W_]+(?:[.,:'’-][^\W_]+)*")
# Alone, these say nothing.
EMPTY = frozenset(
    re.findall(r"\w+", "a an and are as at be by for from in is it its of on or that the this to was were with")
)
SIGN = re.compile(r"[^\w\s.,;:!?'\"“”‘’()\[\]–—~=_-]")  # "@", "#mutt": a sign may be the answer
CHOICE = re.compile(r"\bor\b", re.IGNORECASE)  # "Is it red or blue?" holds its answer
DOTTED = re.compile(r"(?<![a-z0-9.-])[a-z0-9-]++(?:\.[a-z0-9-]++){2,}")  # names of hosts, versions


class Candidate(NamedTuple):
    """What is shown of a span, and its lead over "no answer"."""

    edges: Edges
    lead: float


def candidates(question: str, text: str, spans: Sequence[Edges], leads: Sequence[float]) -> list[Candidate]:
    """Return the spans that may answer a question, best first."""
    kind = kind_asked(question)
    every = list(zip(spans, leads, strict=True))
    found = []
    for span, lead in [one for one in every if not says_nothing(question, text[slice(*one[0])])] or every:
        if kind is None:
            found.append(Candidate(whole_names(text, *within_brackets(text, *span)), lead))
        else:
            found.append(Candidate(shortened(text, *span, kind), lead - loss(text, *span, kind)))
    return sorted(found, key=lambda one: -one.lead)


def loss(text: str, start: int, end: int, kind: Kind) -> float:
    """What a span loses that does not hold an expression of the kind that is asked for."""
    if expressions(text, start, end, kind.exact):
        return 0.0
    return VAGUE if may_answer(text, start, end, kind) else LOST


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, without articles and other words that alone say nothing."""
    return [word for word in WORD.findall(text.lower()) if word not in EMPTY]


def says_nothing(question: str, span: str) -> bool:
    """Whether a span has no word that is not in the question, and no sign."""
    if CHOICE.search(question) or SIGN.search(span):
        return False
    return set(words_of(span)) <= set(words_of(question))


def within_brackets(text: str, start: int, end: int) -> Edges:
    """The span up to the bracket that closes before its end and was opened before its start."""
    before, depth = text[max(start - REACH, 0) : start], 0
    if before.rfind("(") <= before.rfind(")"):
        return start, end
    for place in range(start, end):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth < 0:
            return start, place if place > start else end
    return start, end


def whole_names(text: str, start: int, end: int) -> Edges:
    """The span with the rest of a host's name or a version at its edges: "purdue" becomes "ftp.cc.purdue.edu"."""
    around = (found.span() for found in DOTTED.finditer(text, max(start - REACH, 0), end + REACH))
    cut = [edges for edges in around if edges[0] < start < edges[1] or edges[0] < end < edges[1]]
    return min([start, *(first for first, _ in cut)]), max([end, *(last for _, last in cut)])
