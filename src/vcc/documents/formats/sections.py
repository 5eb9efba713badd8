"""Find the headings of plain text, which locate an answer in a contract, paper or book.

Only its form marks a heading: "ARTICLE 4", "12. GOVERNING LAW", "3.2 Results", alone on a line, at the start of a
paragraph ("7. Term. This Agreement ...") or, if line breaks were lost, inside one. The weaker the form, the more
strictly its number must follow the previous one.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from vcc.documents.text import BELOW

ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
LONGEST = 100  # characters of a heading
STEP = 3  # a number may exceed the previous one by this much: headings in between may have been missed

KIND = (
    r"(?i:chapter|part|book|volume|letter|stave|act|scene|section|article|exhibit|schedule|appendix|annex|attachment)"
)
ORDINAL = (
    r"(?:\d{1,3}(?:\.\d{1,2})*+|[IVXLCDM]{1,7}|[A-Z](?:-\d{1,2})?|(?i:(?:the[ \t]+)?"
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|first|second|third|last)))\b"
)
NUMBER = r"(?P<number>\d{1,2}(?:\.\d{1,2})*+|[IVXL]{1,6}|[A-Z])"
SMALL = r"(?:of|the|this|any|no|not|and|to|for|in|on|or|by|with|from|at|as|a|an|upon|under|between|its|&)\b"
WORD = r"[(\"“]?[A-Z][\w'’/&-]{0,24}[)\"”]?"
TITLE = rf"{WORD}(?:[,;]?[ \t]{{1,4}}(?:{SMALL}|{WORD})){{0,10}}"
SHORT = r"[A-Z][\w'’-]{1,24}(?:[ \t]{1,4}[\w'’-]{1,24}){0,4}"  # after "4.2", which rarely starts anything else

# On its own line between blank lines: anything that starts like a heading.
ALONE = re.compile(
    rf"[ \t]*(?:#{{1,6}}[ \t]+)?({KIND}[ \t]+{ORDINAL}[^\n]{{0,90}}"
    r"|(?:\d{1,2}|[IVXLC]{1,6})\.(?:\d{1,2}\.?)*+[ \t]+(?:[A-Z][^\n]{0,78}[^\s.,;:]|[A-Z][A-Z ,&'()/-]{2,78}\.))"
)
# On its own line among others.
NAMED_LINE = re.compile(rf"[ \t]*({KIND}[ \t]+{ORDINAL}[ \t]*[-–—.:]{{0,2}}[ \t]*(?:{TITLE})?)[.:]?")
NUMBERED_LINE = re.compile(rf"[ \t]*({NUMBER}[.)]?[ \t]+{TITLE})[.:]?")
PAPER_LINE = re.compile(
    r"[ \t]*((?i:abstract|introduction|background|related work|methods?|methodology|materials and methods|experiments?"
    r"|results|discussion|results and discussion|evaluation|conclusions?|limitations|acknowledge?ments?|references))"
    r"[.:]?"
)
# At the start of a line or after a sentence, with text directly behind it.
NAMED_START = re.compile(rf"((?i:section|article)[ \t]+{ORDINAL}[.:]?[ \t]+{TITLE})[.:](?=\s)")
NUMBERED_START = re.compile(
    rf"({NUMBER}(?:\.[ \t]+{TITLE}|(?<=\d\.\d)[ \t]+(?:{TITLE}|{SHORT})|(?<=\d\d)[ \t]+{TITLE}))[.:](?=\s)"
)
UNTITLED = re.compile(r"^[ \t]*((?P<number>\d{1,2}(?:\.\d{1,2})*+)[.)]?)[ \t]+(?=[A-Z\"“(])", re.MULTILINE)
BEHIND_A_SENTENCE = re.compile(r"(?<=[.;:)\"”])[ \t]++(?=\d|[SA])|(?<![ \t])[ \t]{2,}+(?=\d|[SA])")


@dataclass(frozen=True)
class Heading:
    start: int
    label: str


def shown(words: str) -> str:
    return " ".join(words.split()).rstrip(".:")


@dataclass
class Numbers:
    """The number of the last heading, and the numbers that can follow."""

    last: int = 0

    def follows(self, number: str, step: int = STEP) -> bool:
        """Whether a heading may have this number here; only the first of "4.2.1" counts. Letters and Roman numerals are
        not checked."""
        first = number.split(".")[0]
        if not first.isdigit():
            return True
        value, inside = int(first), "." in number
        if not (value == 1 or self.last < value <= self.last + step or (inside and value == self.last)):
            return False
        self.last = value
        return True


def headings(text: str) -> list[Heading]:
    """The headings of a text with their starts, in order; without headings, its numbered paragraphs."""
    return list(nested(titled(text))) or list(untitled(text))


def nested(found: Iterable[Heading]) -> Iterator[Heading]:
    """ "10.1 Period" below "10. WARRANTY" gets both names."""
    above, number = "", None
    for heading in found:
        first, inside = number_of(heading.label)
        if inside and above and first == number:
            yield replace(heading, label=f"{above}{BELOW}{heading.label}")
        else:
            if not inside:
                above, number = heading.label, first
            yield heading


def number_of(label: str) -> tuple[int | None, bool]:
    """The first number of "ARTICLE IV", "4. Law" or "Section 4.2 Law", and whether it has a second."""
    found = re.search(r"(\d+)(\.\d)?|\b[IVXLC]+\b", label)
    if found is None:
        return None, False
    return int(found.group(1)) if found.group(1) else roman(found.group()), found.group(2) is not None


def roman(digits: str) -> int:
    values = [ROMAN[digit] for digit in digits]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))


def untitled(text: str) -> Iterator[Heading]:
    numbers = Numbers()
    for found in UNTITLED.finditer(text):
        if numbers.follows(found["number"], 1):
            yield Heading(found.start(1), shown(found.group(1)))


def titled(text: str) -> Iterator[Heading]:
    numbers = Numbers()
    start, before = 0, ""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        after = lines[index + 1] if index + 1 < len(lines) else ""
        yield from headings_of_line(line, start, not before.strip() and not after.strip(), numbers)
        start, before = start + len(line) + 1, line


def headings_of_line(line: str, start: int, alone: bool, numbers: Numbers) -> Iterator[Heading]:
    if not line.strip():
        return
    begin = len(line) - len(line.lstrip(" \t"))
    if len(line) <= LONGEST + 20 and not NAMED_START.match(line, begin):
        stripped = line.rstrip()
        if alone and (found := ALONE.fullmatch(stripped)):
            first = re.match(r"\d+", found.group(1))
            numbers.last = int(first.group()) if first else numbers.last
            yield Heading(start, shown(found.group(1)))
            return
        if found := NAMED_LINE.fullmatch(stripped) or PAPER_LINE.fullmatch(stripped):
            yield Heading(start, shown(found.group(1)))
            return
        found = NUMBERED_LINE.fullmatch(stripped)
        if found and numbers.follows(found["number"]):
            yield Heading(start, shown(found.group(1)))
            return
    places = [(begin, STEP), *((gap.end(), STEP - 1) for gap in BEHIND_A_SENTENCE.finditer(line, begin + 1))]
    for place, step in places:
        if (found := NAMED_START.match(line, place)) or (
            (found := NUMBERED_START.match(line, place))
            and (place == begin or found["number"][0].isdigit())  # "A. Smith." may occur in any sentence
            and numbers.follows(found["number"], step)
        ):
            yield Heading(start + place, shown(found.group(1)))
