"""Hide passages in a long text of any length, at any depth, reproducibly."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import overload

import numpy as np

from vcc.data.example import Example
from vcc.errors import DataError, UsageError

TOKENS_PER_WORD = 1.4  # lengths are in tokens, before a tokenizer is known; most texts have fewer
GAP = "\n\n"


@dataclass(frozen=True)
class Hidden:
    """The long text, and where each passage starts in it (characters)."""

    document: str
    starts: tuple[int, ...]


@dataclass(frozen=True)
class Paragraphs:
    """Text to hide things in, in order. `owners` are what each paragraph belongs to (a title, a book)."""

    texts: tuple[str, ...]
    owners: tuple[str, ...]
    sizes: tuple[int, ...]  # in words

    @staticmethod
    def of(pairs: Sequence[tuple[str, str]]) -> "Paragraphs":
        """From (owner, text) pairs; paragraphs without a word are dropped."""
        kept = [(owner, text.strip(), len(text.split())) for owner, text in pairs if text.strip()]
        if not kept:
            raise DataError("a haystack must have at least one paragraph with a word in it")
        owners, texts, sizes = zip(*kept, strict=True)
        return Paragraphs(texts, owners, sizes)

    def running(self, rng: np.random.Generator, words: int) -> list[str]:
        """Consecutive paragraphs from a random start, wrapping around: one voice, as in a book."""
        return self._take(count(int(rng.integers(len(self.texts)))), words)

    def mixed(self, rng: np.random.Generator, words: int, without: str) -> list[str]:
        """Paragraphs drawn at random, none of the owner `without`, repeated only after all were used."""
        others = [i for i, owner in enumerate(self.owners) if owner != without]
        if not others:
            raise DataError(f"every paragraph of the haystack belongs to {without!r}: there is no filler left")
        return self._take((int(i) for _ in count() for i in rng.permutation(others)), words)

    def _take(self, order: Iterable[int], words: int) -> list[str]:
        """Whole paragraphs, the last one cut, until there are `words` words."""
        taken: list[str] = []
        for i in order:
            if words <= 0:
                break
            text = self.texts[i % len(self.texts)]
            if self.sizes[i % len(self.texts)] > words:
                text = " ".join(text.split()[:words])
            taken.append(text)
            words -= self.sizes[i % len(self.texts)]
        return taken


def hide(passages: Sequence[str], filler: Sequence[str], depths: Sequence[float]) -> Hidden:
    """Put each passage between two filler paragraphs, at its depth: the share of words before it, 0 to 1.

    Passages keep their order, so depths must not fall.
    """
    if list(depths) != sorted(depths) or (len(depths) and not 0 <= depths[0] <= depths[-1] <= 1):
        raise ValueError(f"depths {tuple(depths)} must rise and lie in 0..1")
    before = np.cumsum([0, *(len(text.split()) for text in filler)])  # words before each gap
    gaps = [int(np.abs(before - depth * before[-1]).argmin()) for depth in depths]
    pieces: list[str] = []
    places = []
    for gap in range(len(filler) + 1):
        for passage, wanted in zip(passages, gaps, strict=True):
            if wanted == gap:
                places.append(len(pieces))
                pieces.append(passage)
        pieces.extend(filler[gap : gap + 1])
    offsets = np.cumsum([0, *(len(piece) + len(GAP) for piece in pieces)])
    return Hidden(GAP.join(pieces), tuple(int(offsets[place]) for place in places))


TokenCount = Callable[[Example], int]  # of all tokens of a model's input


def made_to_fit(make: Callable[[int], Example], words: int, length: int, count: TokenCount | None) -> Example:
    """Call `make` with this many words of filler, then with fewer, until the result has at most `length` tokens."""
    example = make(words)
    while count is not None and words > 0 and (tokens := count(example)) > length:
        words -= max(1, words * (tokens - length) // tokens)
        example = make(words)
    return example


class Generated(Sequence[Example]):
    """Examples generated on demand, each from its index and from `made_of`, the source texts."""

    def __init__(self, size: int, make: Callable[[int], Example], made_of: Sequence[Sequence[object]] = ()) -> None:
        if size < 1:
            raise UsageError(f"{size} examples: it must be at least 1")
        self.size, self.make, self.made_of = size, make, made_of

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.size))]
        if not -self.size <= index < self.size:
            raise IndexError(f"example {index} of {self.size}")
        return self.make(index % self.size)
