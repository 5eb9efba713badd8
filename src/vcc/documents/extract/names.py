"""Names in a span: two companies in one span are two names, and a defined term is none.

A contract opens with `Acme, Inc., a Delaware corporation ("Acme") and Beta LLC (the "Buyer")`: the names are "Acme,
Inc." and "Beta LLC".
"""

import re
from collections.abc import Iterable, Sequence, Set

from vcc.documents.answer import Answer, answer_at
from vcc.documents.extract.values import ReadValue
from vcc.documents.text import Text

QUOTES = "\"'“”‘’„«»"
# What a company's name ends with.
FORM = (
    r"(?:Inc|Incorporated|LLC|L\.L\.C|Ltd|Limited|Corp|Corporation|Company|Co|LP|L\.P|LLP|L\.L\.P|PLC|plc|GmbH|AG|KG|SE|"
    r"S\.A|SA|S\.p\.A|SpA|S\.r\.l|B\.V|BV|N\.V|NV|A/S|AB|Oy|Pty|Trust|Fund|Bank|Association|University|Partnership|"
    r"INC|LTD|CORP|CORPORATION|LIMITED|COMPANY|CO|INCORPORATED)\b\.?"
)
# Between two names: only after a company's form or a closing bracket, for "Harrow and Vale" is one name.
BETWEEN = re.compile(r"(?:(?<=\))|(?<=[\w.]))\s*(?:;|\n\s*\n|,?\s+(?:and|&|AND)\s+|,\s+(?=[A-Z]))")
ENDS = re.compile(rf"(?:{FORM}|\)|\b(?:corporation|company|partnership))$")
BRACKETS = re.compile(rf"\s*\([^()]*(?:\)|$)(?!\s*{FORM})")  # but "Acme (USA) Inc." is a name
# Where terms are defined: (the "Buyer"), hereinafter called "Acme".
DEFINING = re.compile(r"\([^()]{1,300}\)?|\b(?:called|as|hereinafter)\s+(?:the\s+)?[\"“”'‘][^\"“”\n]{1,60}[\"”]?")
DEFINED = re.compile(r"[\"“”„«'‘]+([^\"“”„«»\n]{1,60}?)[.,]?[\"“”»'’]")
ABOUT = re.compile(  # what follows a name: ", a Delaware corporation", "with its principal office at"
    r",?\s+(?:an?\s+[\w\s.-]*?(?:corporation|company|partnership|association|trust|bank|individual|entity)\b|"
    r"(?:with|having)\s+(?:its|an?|offices?)\b|whose\s|located\s|organi[sz]ed\s|incorporated\s+(?:in|under)\b|"
    r"together\s+with\b|formerly\b|on behalf of\b).*$",
    re.IGNORECASE | re.DOTALL,
)
OPENING = re.compile(r"^(?:(?:(?:is|are|made|entered\s+into|by|[Aa]nd|AND|between|among|[Tt]he)\s+)+)(?=[A-Z0-9])")
LABEL = re.compile(r"^[\w/ ()-]{1,30}:\s+(?=\S)")  # "The buyer: Acme Ltd."
# A blank to fill in, "a Maryland corporation", a postcode, another name of a party, what the parties are called.
NOT_A_NAME = re.compile(
    r"__|<|[\"“”«»]|\b[A-Z]{2} \d{4,}|^(?:an?|doing business as|formerly|[adf][/.]?[bk][/.]?a[/.]?)\s|"
    r"\b(?:collectively|hereinafter|individually|referred to|named (?:above|below))\b",
    re.IGNORECASE,
)
LONGEST = 12  # words; more are a sentence
TERMS = frozenset(
    word
    for line in (
        "a an and are as b c called collectively each either hereinafter individually it its of one other referred the",
        "they this to together us we you buyer client company consultant contractor customer distributor franchisee",
        "franchisor lender lessee lessor licensee licensor manufacturer parties party provider purchaser reseller",
        "seller supplier",
    )
    for word in line.split()
)


def names_in(span: str) -> list[ReadValue]:
    """The names that a span holds, in reading order, with the characters of each."""
    found = []
    for first, last in pieces(span):
        first, last = trimmed(span, first, last)
        words = " ".join(span[first:last].split())
        if is_name(words):
            found.append(ReadValue(words, first, last))
    return found


def pieces(span: str) -> list[tuple[int, int]]:
    edges, start = [], 0
    for match in BETWEEN.finditer(span):
        sure = ";" in match.group() or match.group().count("\n") > 1
        if sure or (ENDS.search(span[start : match.start()]) and not begins_with_form(span[match.end() :])):
            edges.append((start, match.start()))
            start = match.end()
    return [*edges, (start, len(span))]


def begins_with_form(rest: str) -> bool:
    """Whether the next word still belongs to the name: "Acme Company, Inc."."""
    return re.match(FORM, rest.lstrip()) is not None


def trimmed(span: str, first: int, last: int) -> tuple[int, int]:
    """Without what stands before and after a name."""
    if match := LABEL.match(span[first:last]):
        first += match.end()
    for pattern in (BRACKETS, ABOUT):
        if match := pattern.search(span, first, last):
            last = match.start() if match.start() > first else last
    if match := OPENING.match(span[first:last]):
        first += match.end()
    while first < last and span[first] in f"{QUOTES} \n\t,;:(.)-":
        first += 1
    while first < last and span[last - 1] in f"{QUOTES} \n\t,;:()":
        last -= 1
    return first, last


def is_name(words: str) -> bool:
    """Whether words name someone: a capital or a company's form, and more than a defined term such as "the Parties"."""
    if NOT_A_NAME.search(words) or len(words.split()) > LONGEST or len(words) < 2:
        return False
    return (any(letter.isupper() for letter in words) or has_form(words)) and bool(words_of(words) - TERMS)


def has_form(name: str) -> bool:
    """Whether a name ends with a company's form, as a full name does."""
    return re.search(rf"(?<!\w){FORM}$", name, re.IGNORECASE) is not None


def words_of(name: str) -> frozenset[str]:
    return frozenset(word.strip(".,").lower() for word in re.split(r"[\s,\"“”]+", name)) - {"", "the"}


def defined_terms(text: str) -> frozenset[str]:
    """The terms that a contract defines, in small letters."""
    places = (match.group() for match in DEFINING.finditer(text))
    return frozenset(" ".join(match[1].split()).lower() for place in places for match in DEFINED.finditer(place))


def parties_among(names: Sequence[str], defined: Set[str]) -> list[int]:
    """The numbers of the names that are parties, each once by its full name. Defined terms count only if there is
    nothing else."""
    own = [i for i, name in enumerate(names) if name.strip(".,").lower() not in defined]
    if not own:
        own = list(range(len(names)))
    words = {i: words_of(names[i]) for i in own}

    def shorter(i: int, j: int) -> bool:
        """Whether name i is name j again, or a short form of it."""
        return (j < i and words[i] == words[j]) or (words[i] < words[j] and not has_form(names[i]))

    def joined(i: int) -> bool:
        """Whether name i puts others together: "Acme and Beta"."""
        others = {word for j in own if not words[i] <= words[j] for word in words[j]}
        return "and" in words[i] and words[i] - {"and"} <= others

    own = [i for i in own if not joined(i)]
    return [i for i in own if not any(j != i and shorter(i, j) for j in own)]


def parties_in(text: Text, answers: Iterable[Answer]) -> list[Answer]:
    """The parties that answers name, each where it stands."""
    found = [
        answer_at(text, answer.start + name.start, answer.start + name.end, answer.score, answer.sure)
        for answer in answers
        for name in names_in(answer.text)
    ]
    return [found[i] for i in parties_among([one.text for one in found], defined_terms(text.text))]
