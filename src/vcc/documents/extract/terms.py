"""The day a term ends, where a clause gives its length: "five years from the Effective Date"."""

import re
from collections.abc import Callable
from datetime import date

from vcc.documents.extract.values import ReadValue, package, read_number, values_in

# Before a date on which a term begins: "commencing on January 1, 2016".
BEGINS = re.compile(r"(?:commenc|begin|start|effective|from|as\s+of|made|dated|entered)\w*\W+(?:\w+\W+){0,3}$", re.I)
NEVER = re.compile(r"\b(?:perpetu|indefinite|until\s+terminated)", re.I)
# Durations of something else than the term: "sixty days' notice", "renewed for one year".
OTHER = re.compile(r"(?:renew|extend|extension|notice|successive|additional)\w*\W+(?:\w+\W+){0,6}$", re.I)
ANNIVERSARY = re.compile(r"([\w-]+)(?:\s+\(\w+\))?(?:\s+year)?\s+anniversary", re.I)
NOTICE = re.compile(r"^\W*(?:\w+\W+){0,3}(?:notice|advance|renewal|prior)", re.I)


def end_of_term(clause: str, begins: Callable[[], str | None]) -> ReadValue | None:
    """The day on which a term ends, as YYYY-MM-DD, with the words that say so: a date, or the length of the term.

    `begins` tells when the agreement takes effect, where the clause does not.
    """
    starts: list[ReadValue] = []
    for day in values_in("date", clause):
        if not BEGINS.search(clause[max(0, day.start - 60) : day.start]):
            return day
        starts.append(day)
    lengths = sorted([*terms_in(clause), *anniversaries_in(clause)], key=lambda one: one.start)
    endless = NEVER.search(clause)
    if not lengths or (endless is not None and endless.start() < lengths[0].start):
        return None
    start = starts[0].value if starts else begins()
    return None if start is None else ReadValue(added(start, lengths[0].value), lengths[0].start, lengths[0].end)


def terms_in(clause: str) -> list[ReadValue]:
    """Lengths in years or months that are those of a term, not of a renewal or a notice."""
    return [
        length
        for length in values_in("duration", clause)
        if re.fullmatch(r"P\d+[YM]", length.value)
        and not OTHER.search(clause[max(0, length.start - 80) : length.start])
        and not NOTICE.search(clause[length.end : length.end + 40])
    ]


def anniversaries_in(clause: str) -> list[ReadValue]:
    """ "The fifth anniversary": five years."""
    found = ((match, read_number(match[1])) for match in ANNIVERSARY.finditer(clause))
    return [ReadValue(f"P{number}Y", *match.span()) for match, number in found if number]


def added(start: str, length: str) -> str:
    """A day some months or years later; the last day of a shorter month."""
    number, unit = int(length[1:-1]), length[-1]
    delta = package("dateutil.relativedelta").relativedelta(**{"years" if unit == "Y" else "months": number})
    later: date = date.fromisoformat(start) + delta
    return later.isoformat()
