"""Whether a sentence that a model wrote is supported by the passages it was given.

`document.verify` checks every sentence first. `is_supported` decides where it finds nothing: it compares words, so it
finds invented names, numbers and topics, not a wrong relation between the right words.
"""

import re
from collections.abc import Iterator, Sequence

from vcc.documents.text import sentence_ends

WORD = re.compile(r"\d+(?:[.,:/]\d+)*|[^\W_]+(?:['’][^\W_]+)*")
LONG = 4  # letters of a word that says something
SHARE = 0.5  # of such words that must be in the document too
TOGETHER = 2  # neighbouring sentences that must hold all names and numbers


def is_supported(sentence: str, passages: Sequence[str]) -> bool:
    """Whether neighbouring sentences of a passage hold all names and numbers of a sentence, and most other words."""
    facts, others = facts_of(sentence), set(words_of(sentence))
    others = {word for word in others - facts if len(word) >= LONG}
    if not facts and not others:
        return False  # "Yes.": there is nothing to compare
    for passage in passages:
        parts = [set(words_of(part)) for part in sentences_of(passage)]
        for first in range(max(1, len(parts) - TOGETHER + 1)):
            given = set().union(*parts[first : first + TOGETHER])
            if facts <= given and len(others & given) >= SHARE * len(others):
                return True
    return False


def facts_of(sentence: str) -> set[str]:
    """Names and numbers, in small letters. A capital at the start of a sentence makes no name."""
    found = set()
    for match in WORD.finditer(sentence):
        word, before = match.group(), sentence[: match.start()].rstrip("\"'“‘( ")
        named = word[0].isupper() and word != "I" and before[-1:] not in ("", ".", "!", "?", ":", "\n")
        if named or word[0].isdigit():
            found.add(plain(word))
    return found


def words_of(text: str) -> Iterator[str]:
    return (plain(match.group()) for match in WORD.finditer(text))


def plain(word: str) -> str:
    return word.lower().removesuffix("'s").removesuffix("’s")


def sentences_of(text: str) -> list[str]:
    starts, stops = [0], []
    for stop, start in sentence_ends(text):
        stops.append(stop)
        starts.append(start)
    parts = (text[start:stop].strip() for start, stop in zip(starts, [*stops, len(text)], strict=True))
    return [part for part in parts if part]
