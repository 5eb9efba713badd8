"""What a reader skips: tables of contents, indexes at the end of a book, running heads and page numbers.

They repeat the words of a question without answering it. They stay in the text; the model does not read them. A stretch
is skipped only on strong evidence, in time linear in the text:

- a line with dot leaders and a page number, next to others like it;
- a list of numbered titles that stand again, as headings, further down;
- a long run of lines in alphabetical order that end in page numbers;
- the first or last lines of a page that return on other pages, whatever their numbers; and a line that returns through
  a text without pages with a page number that grows.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vcc.documents.text import Text

PAGE_NUMBER = r"(?:\d{1,4}|[ivxlc]{1,7})"
LEADERS = re.compile(rf"(?:[.·…_] ?){{4,}}\s*{PAGE_NUMBER}$")  # "Introduction . . . . . . 12"
TITLE = re.compile(  # "3.2. Names", "Appendix B Signs"
    r"(?:[o?•*–-] )?(?:chapter |appendix |section )?(?:\d+|[A-Z](?=[.\d]))(?:\.\d+)*[.:]?\s+(\S.*)", re.IGNORECASE
)
ENTRY = re.compile(r"(\w[^\d]{1,60}?),? (?:\d{1,4}(?:[–-]\d{1,4})?, ?)*\d{1,4}(?:[–-]\d{1,4})?$")  # "trees, 12, 40–43"
NUMBER = re.compile(r"\d+")

LONGEST_LINE = 100  # characters of a title or a running head
WITH_LEADERS = 3  # lines in a group
TITLES = 6  # of a table of contents without page numbers
REPEATED = 0.7  # share of those titles that must stand again below
ENTRIES = 15  # of an index
SORTED = 0.85  # share of neighbours in alphabetical order
EDGE = 2  # lines at the top and at the bottom of a page that may be running heads
RETURNS = 3  # pages a running head stands on
GROWS = 5  # page numbers of a running head in a text without pages


class Line(NamedTuple):
    """A line that is not blank, without the blanks around it."""

    start: int
    end: int
    words: str


def unread(text: Text) -> list[tuple[int, int]]:
    """Return the stretches (first, last + 1 character) that are not read, in order and apart."""
    lines = lines_of(text.text, 0, len(text.text))
    short = [line for line in lines if len(line.words) <= LONGEST_LINE]
    found = [*with_leaders(lines), *contents(lines), *entries(lines)]
    paged = len(text.parts) > 1 and all(part.label.rpartition("page ")[2].isdigit() for part in text.parts)
    found += heads_of_pages(text) if paged else heads_with_numbers(short)
    return merged((line.start, line.end) for line in found)


def lines_of(text: str, start: int, end: int) -> list[Line]:
    found = []
    while start < end:
        stop = text.find("\n", start, end)
        stop = end if stop < 0 else stop
        words = text[start:stop].strip()
        if words:
            first = start + text[start:stop].index(words[0])
            found.append(Line(first, first + len(words), words))
        start = stop + 1
    return found


def with_leaders(lines: Sequence[Line]) -> Iterator[Line]:
    """Lines with dot leaders and a page number, in groups; a title may be broken over two lines."""
    marked = [i for i, line in enumerate(lines) if LEADERS.search(line.words[-200:])]
    for group in groups(marked, 2):
        if len(group) >= WITH_LEADERS:
            yield from (lines[i] for i in range(group[0], group[-1] + 1) if len(lines[i].words) <= 2 * LONGEST_LINE)


def contents(lines: Sequence[Line]) -> Iterator[Line]:
    """Lists of numbered titles, with few lines between them, whose titles are lines again below."""
    marked = [i for i, line in enumerate(lines) if len(line.words) <= LONGEST_LINE and TITLE.match(line.words)]
    last = {title_of(line.words): i for i, line in enumerate(lines)}
    for group in groups(marked, 2):
        again = sum(last[title_of(lines[i].words)] > group[-1] for i in group)
        if len(group) >= TITLES and again >= REPEATED * len(group):
            yield from lines[group[0] : group[-1] + 1]


def title_of(words: str) -> str:
    match = TITLE.match(words)
    return (match[1] if match else words).lower()


def entries(lines: Sequence[Line]) -> Iterator[Line]:
    """Runs of lines in alphabetical order that end in page numbers."""
    marked = [i for i, line in enumerate(lines) if len(line.words) <= LONGEST_LINE and ENTRY.fullmatch(line.words)]
    for group in groups(marked, 2):
        words = [lines[i].words.lower() for i in group]
        in_order = sum(a[0] <= b[0] for a, b in zip(words, words[1:], strict=False))
        letters = len({word[0] for word in words})
        if len(group) >= ENTRIES and letters >= 3 and in_order >= SORTED * (len(group) - 1):
            yield from lines[group[0] : group[-1] + 1]


def heads_of_pages(text: Text) -> Iterator[Line]:
    """The outer lines of pages that return on other pages, and lone page numbers there."""
    pages = []
    for part in text.parts:
        lines = lines_of(text.text, part.start, part.end)
        outer = lines if len(lines) <= 2 * EDGE else [*lines[:EDGE], *lines[-EDGE:]]
        pages.append([line for line in outer if len(line.words) <= LONGEST_LINE])
    on = Counter(name for page in pages for name in {without_numbers(line.words) for line in page})
    yield from (line for page in pages for line in page if on[without_numbers(line.words)] >= RETURNS)


def heads_with_numbers(lines: Sequence[Line]) -> Iterator[Line]:
    """Lines that return with page numbers that grow by one: "The Guide   12"."""
    same: dict[str, list[tuple[int, Line]]] = defaultdict(list)
    for line in lines:
        numbers = NUMBER.findall(line.words[-6:])
        if numbers and re.search(r"[^\W\d]\s.*\s\d{1,4}$", line.words) and len(numbers[-1]) <= 4:
            same[without_numbers(line.words)].append((int(numbers[-1]), line))
    for some in same.values():
        steps = [b - a for (a, _), (b, _) in zip(some, some[1:], strict=False)]
        if len(some) >= GROWS and sum(1 <= step <= 2 for step in steps) >= SORTED * len(steps):
            yield from (line for _, line in some)


def without_numbers(words: str) -> str:
    return " ".join(NUMBER.sub("#", words).lower().split())


def groups(marked: Sequence[int], gap: int) -> Iterator[list[int]]:
    """Runs of line numbers with less than `gap` other lines between neighbours."""
    run: list[int] = []
    for i in marked:
        if run and i - run[-1] > gap:
            yield run
            run = []
        run.append(i)
    if run:
        yield run


def merged(spans: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
