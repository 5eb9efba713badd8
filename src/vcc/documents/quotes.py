"""Quotes without a model: a sentence that stands in a document, word for word or nearly so.

In a near quote, a changed name, number, sum or date is a contradiction; so is a "not" too many or too few.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

WORD = re.compile(r"\d[\d,.]*\d|\w+(?:['’]\w+)*|[$€£¥%]")
NEAR = 0.75  # share of a sentence's words that stand in the same order in the document
SAME = 0.9  # with this share, and no word that matters changed, it is a quote
SHORTEST = 4  # words; fewer are found everywhere
LONGEST = 400  # words
SLACK = 1.4  # words of a stretch for each word of the sentence
WORDS = {  # that change what a sentence says
    "negations": "not no never neither nor without none cannot nothing except unless",
    "modals": "may must shall should can could will would might",
    "numbers": "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million "
    "billion half twice first second third fourth fifth",
    "days": "january february march april june july august september october november december monday tuesday "
    "wednesday thursday friday saturday sunday",
}
NEGATIONS, MODALS, NUMBERS, DAYS = (frozenset(words.split()) for words in WORDS.values())


@dataclass(frozen=True)
class QuotedWord:
    """A word in small letters, and where it stands."""

    word: str
    start: int
    end: int
    capital: bool


@dataclass(frozen=True)
class Quote:
    """The stretch of a document that a sentence quotes. `changed`: the sentence's words and the document's."""

    start: int
    end: int
    share: float  # of the sentence's words, in order
    changed: tuple[str, str] | None = None
    exact: bool = False  # word for word

    @property
    def faithful(self) -> bool:
        return self.changed is None and self.share >= SAME


@lru_cache(maxsize=4)
def words_of(text: str) -> tuple[QuotedWord, ...]:
    return tuple(
        QuotedWord(plain(match.group()), *match.span(), match.group()[0].isupper()) for match in WORD.finditer(text)
    )


def plain(word: str) -> str:
    """One spelling: small letters, no commas in numbers."""
    word = word.casefold().replace("’", "'")
    return word.replace(",", "").rstrip(".") if word[0].isdigit() else word


@lru_cache(maxsize=4)
def places_of(text: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for number, word in enumerate(words_of(text)):
        found[word.word].append(number)
    return found


def find_quote(text: str, sentence: str) -> Quote | None:
    """Where a document says a sentence, exactly or nearly; None if it does not."""
    said = words_of(sentence)
    if not SHORTEST <= len(said) <= LONGEST:
        return None
    words = words_of(text)
    exact = exact_place(text, [one.word for one in said])
    if exact is not None:
        return Quote(words[exact].start, words[exact + len(said) - 1].end, 1.0, exact=True)
    stretch = likeliest_stretch(text, [one.word for one in said])
    return None if stretch is None else aligned(text, sentence, *stretch)


def exact_place(text: str, said: Sequence[str]) -> int | None:
    words, places = words_of(text), places_of(text)
    rare = min(range(len(said)), key=lambda i: len(places.get(said[i], ())))
    for place in places.get(said[rare], ()):
        first = place - rare
        if first >= 0 and [one.word for one in words[first : first + len(said)]] == list(said):
            return first
    return None


def likeliest_stretch(text: str, said: Sequence[str]) -> tuple[int, int] | None:
    """The words first..last - 1 of a document that hold most of a sentence's words, above all its rare ones."""
    words, places = words_of(text), places_of(text)
    size = int(len(said) * SLACK) + 2
    wanted = Counter(said)
    weights = {word: 1.0 / (1 + len(places[word])) ** 0.5 for word in wanted if word in places}
    if not weights:
        return None
    hits = sorted((place, word) for word in weights for place in places[word])
    best, best_first, total, low = 0.0, 0, 0.0, 0
    inside: Counter[str] = Counter()
    for place, word in hits:
        inside[word] += 1
        total += weights[word] if inside[word] <= wanted[word] else 0.0
        while hits[low][0] <= place - size:
            gone = hits[low][1]
            total -= weights[gone] if inside[gone] <= wanted[gone] else 0.0
            inside[gone] -= 1
            low += 1
        if total > best + 1e-12:
            best, best_first = total, hits[low][0]
    return max(best_first - 3, 0), min(best_first + size + 3, len(words))


def aligned(text: str, sentence: str, first: int, last: int) -> Quote | None:
    """Compare a sentence with a stretch of a document, word by word."""
    said, there = words_of(sentence), words_of(text)[first:last]
    matcher = SequenceMatcher(None, [one.word for one in said], [one.word for one in there], autojunk=False)
    blocks = [block for block in matcher.get_matching_blocks() if block.size]
    if not blocks:
        return None
    share = sum(block.size for block in blocks) / len(said)
    begin, end = blocks[0].b, blocks[-1].b + blocks[-1].size
    # A word at the edge may be the one that was changed: as many words of the document belong to the quote.
    begin, end = max(begin - blocks[0].a, 0), min(end + len(said) - blocks[-1].a - blocks[-1].size, len(there))
    if share < NEAR or end - begin > len(said) * SLACK + 2:
        return None
    changed = None
    for kind, a, b, x, y in matcher.get_opcodes():
        x, y = max(x, begin), min(y, end)
        if kind == "equal" or changed is not None:
            continue
        ours, theirs = said[a:b], there[x:y] if x < y else ()
        if matters(ours, theirs, a == 0):
            changed = spoken(sentence, ours), spoken(text, theirs)
    return Quote(there[begin].start, there[end - 1].end, share, changed)


def matters(ours: Sequence[QuotedWord], theirs: Sequence[QuotedWord], opens: bool) -> bool:
    """Whether a change of words changes a name, a number, a date, a duty or a negation."""
    one, other = {word.word for word in ours}, {word.word for word in theirs}
    if (one & NEGATIONS) != (other & NEGATIONS):
        return True
    for word in ours:
        if word.word in other:
            continue
        names = word.capital and not (opens and word is ours[0])
        if names or word.word[0].isdigit() or word.word in NUMBERS or word.word in DAYS or word.word in "$€£¥%":
            return True
    if {word for word in other if word[0].isdigit()} - one and ours:
        return True
    return bool(ours and theirs and (one & MODALS) != (other & MODALS) and one & MODALS and other & MODALS)


def spoken(text: str, words: Sequence[QuotedWord]) -> str:
    return " ".join(text[words[0].start : words[-1].end].split()) if words else ""
