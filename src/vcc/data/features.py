"""Turn examples into tokens: the VIPs (question) first, then the document.

Layouts, chosen by the tokenizer itself:

    BERT      [CLS] question [SEP] document [SEP]
    RoBERTa   <s> question </s></s> document </s>
    T5        question: ... context: document </s>       or       summarize: document </s>

Everything before the document is VIP: the question, the CLS token that heads read, the separators.

Multiple choice is one row, as in the paper, with the question and all choices as VIPs. Each choice is closed by a
separator of its own, whose state its score is read from (`vcc/hosts/forward/choices.py`):

    BERT      [CLS] question [SEP] choice [SEP] choice [SEP] document [SEP]
    RoBERTa   <s> question </s></s> choice </s> choice </s></s> document </s>
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcc.data.example import SUMMARIZE, UNANSWERABLE, Example, Head
from vcc.errors import DataError, ModelError, UsageError

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Row:
    """One sequence for the model. `offsets` are character ranges of the document, -1 for other tokens."""

    input_ids: Ints  # (n,)
    token_type_ids: Ints  # (n,)
    offsets: Ints  # (n, 2)
    vip_count: int  # the first `vip_count` tokens are the VIPs
    choice_tokens: tuple[int, ...] = ()  # for multiple choice, the index of the separator that closes each

    @property
    def kept(self) -> int:
        """The number of tokens of the document in the row."""
        return int((self.offsets[:, 0] >= 0).sum())


@dataclass(frozen=True)
class Features:
    """One example, tokenized. `spans` are (first, last) tokens of its row, both included, sorted."""

    id: str
    row: Row
    spans: tuple[tuple[int, int], ...] = ()
    label: int | None = None
    target_ids: Ints | None = None  # (t,), the text to generate
    tokens: int = 0  # of the document and the question, before truncation
    cut_tokens: int = 0  # how many of them did not fit
    cut_answers: int = 0  # answer spans lost with them
    cut_target: int = 0  # tokens of the text to generate that did not fit

    @property
    def length(self) -> int:
        return len(self.row.input_ids)


@dataclass(frozen=True)
class TruncationReport:
    """What did not fit. It is always printed: truncation is never silent."""

    examples: int = 0
    cut_examples: int = 0
    tokens: int = 0
    cut_tokens: int = 0
    cut_answers: int = 0
    cut_targets: int = 0

    @staticmethod
    def of(features: Iterable[Features]) -> "TruncationReport":
        report = TruncationReport()
        for one in features:
            report += TruncationReport(
                1, int(one.cut_tokens > 0), one.tokens, one.cut_tokens, one.cut_answers, int(one.cut_target > 0)
            )
        return report

    def __add__(self, other: "TruncationReport") -> "TruncationReport":
        return TruncationReport(
            self.examples + other.examples,
            self.cut_examples + other.cut_examples,
            self.tokens + other.tokens,
            self.cut_tokens + other.cut_tokens,
            self.cut_answers + other.cut_answers,
            self.cut_targets + other.cut_targets,
        )

    def __str__(self) -> str:
        parts = [
            f"truncated: {_share(self.cut_examples, self.examples)} examples",
            f"{_share(self.cut_tokens, self.tokens)} tokens",
        ]
        if self.cut_answers:
            parts.append(f"{self.cut_answers:,} answer spans lost with them")
        if self.cut_targets:
            parts.append(f"{_share(self.cut_targets, self.examples)} target texts")
        return ", ".join(parts)


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({100 * part / max(whole, 1):.1f}%)"


@dataclass(frozen=True)
class TokenizedText:
    """A text's tokens and their character ranges."""

    ids: Ints  # (n,)
    offsets: Ints  # (n, 2)


@dataclass
class TextCache:
    """A cache of tokenized documents, bounded by tokens: the 41 questions on one contract tokenize it once."""

    max_tokens: int = 16_000_000  # 12 bytes each
    texts: OrderedDict[str, TokenizedText] = field(default_factory=OrderedDict)
    tokens: int = 0
    misses: int = 0

    def get(self, text: str, tokenizer: Any) -> TokenizedText:
        found = self.texts.get(text)
        if found is None:
            self.misses += 1
            found = self.texts[text] = tokenize_text(text, tokenizer)
            self.tokens += len(found.ids)
            while self.tokens > self.max_tokens and len(self.texts) > 1:
                self.tokens -= len(self.texts.popitem(last=False)[1].ids)
        self.texts.move_to_end(text)
        return found


PLAIN_TEXT: dict[str, Any] = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}


def tokenize_text(text: str, tokenizer: Any) -> TokenizedText:
    """The tokens of a text of any length, none of them special: "<mask>" or "[SEP]" in a text are plain characters.

    If a vocabulary has them as ordinary words, they become the unknown token.
    """
    encoded = tokenizer(text, return_offsets_mapping=True, **PLAIN_TEXT)
    ids = _without_special(encoded["input_ids"], tokenizer)
    return TokenizedText(ids, np.asarray(encoded["offset_mapping"], dtype=np.int32).reshape(-1, 2))


def tokenize_texts(texts: Sequence[str], tokenizer: Any) -> list[Ints]:
    """The ids that `tokenize_text` gives for each text, on all threads of the tokenizer."""
    if not texts:
        return []
    settings = PLAIN_TEXT | {"return_attention_mask": False, "return_token_type_ids": False}
    return [_without_special(ids, tokenizer) for ids in tokenizer(list(texts), **settings)["input_ids"]]


def _without_special(ids: Sequence[int], tokenizer: Any) -> Ints:
    found, unknown = np.asarray(ids, dtype=np.int32), tokenizer.unk_token_id
    if unknown is not None:
        found[np.isin(found, tokenizer.all_special_ids)] = unknown
    return found


@dataclass(frozen=True)
class Frame:
    """The special tokens a tokenizer puts before, between and after two texts, and its segment numbers."""

    before: Ints
    between: Ints
    after: Ints
    second_type: int  # the token type of the second text; 0 if the model has one type

    @staticmethod
    def of(tokenizer: Any) -> "Frame":
        """Read from one encoded pair, so every tokenizer keeps its own rule. T5 has nothing between."""
        pair = tokenizer("a", "a", return_special_tokens_mask=True, return_token_type_ids=True)
        special = np.asarray(pair["special_tokens_mask"], dtype=bool)
        first, last = np.flatnonzero(~special)[[0, -1]]
        ids = np.asarray(pair["input_ids"], dtype=np.int32)
        inside = np.flatnonzero(special[first:last]) + first
        if tokenizer.cls_token_id is None:  # T5 closes each text with </s>; one input needs only the last one
            inside = inside[:0]
        return Frame(ids[:first], ids[inside], ids[last + 1 :], int(pair["token_type_ids"][last]))


class ExampleTokenizer:
    """Turns examples into features for one model, head and length. Holds the cache of documents, nothing else.

    `max_length` counts all tokens of a row. Longer rows are truncated at the end of the document, as in the paper. A
    question that takes more than half of the row is truncated to half, and so are the longest of a question and its
    choices. The features count what was cut.
    `target_length` is the longest text to generate (text head). `max_choices` keeps the right choice and the first
    others (training on WikiHop's up to 79 candidates); None keeps all.
    """

    def __init__(
        self, tokenizer: Any, head: Head, max_length: int, target_length: int = 512, max_choices: int | None = None
    ) -> None:
        if not tokenizer.is_fast:
            raise ModelError(f"{type(tokenizer).__name__} gives no character offsets: it must be a fast tokenizer")
        if max_length < 16:
            raise UsageError(f"max_length {max_length} must be at least 16, to hold a question and some document")
        if max_choices is not None and max_choices < 2:
            raise UsageError(f"max_choices {max_choices} must be at least 2")
        self.tokenizer, self.head, self.max_length = tokenizer, head, max_length
        self.target_length, self.max_choices = target_length, max_choices
        self.frame = Frame.of(tokenizer)
        self.has_cls = tokenizer.cls_token_id is not None
        self.cache = TextCache()

    def __call__(self, example: Example) -> Features:
        document = self.cache.get(example.document, self.tokenizer)
        label, choices = self._choices(example)
        row, cut_vips = self._row(example.id, self._vip_texts(example, choices), document)
        cut = len(document.ids) - row.kept + cut_vips
        features = Features(example.id, row, label=label, tokens=len(row.input_ids) + cut, cut_tokens=cut)
        if self.head == "choice":
            return features
        if self.head == "text":
            target, cut_target = self._target(example)
            return replace(features, target_ids=target, cut_target=cut_target)
        spans = token_spans(example.answer_spans, document.offsets)
        inside = tuple((first + row.vip_count, last + row.vip_count) for first, last in spans if last < row.kept)
        return replace(features, spans=inside, cut_answers=len(spans) - len(inside))

    def _choices(self, example: Example) -> tuple[int | None, tuple[str, ...]]:
        """The index of the right choice, and the choices; training may use only some."""
        label, choices = example.label, example.choices
        if self.head != "choice":
            return None, choices
        if len(choices) < 2:
            raise DataError(f"example {example.id!r} has {len(choices)} choices: the choice head needs two")
        if self.max_choices is None or label is None:
            return label, choices
        others = [i for i in range(len(choices)) if i != label][: self.max_choices - 1]
        kept = sorted([*others, label])
        return kept.index(label), tuple(choices[i] for i in kept)

    def _vip_texts(self, example: Example, choices: Sequence[str]) -> list[str]:
        """The texts before the document: one, or for the choice head the question and each choice."""
        if self.head == "choice":
            return [example.question, *choices]
        question = example.question if not choices else f"{example.question} {' | '.join(choices)}"
        if self.has_cls or question == SUMMARIZE:
            return [question]
        return [f"question: {question} context:"]  # T5's format for a question on a text

    def _row(self, id: str, vip_texts: Sequence[str], document: TokenizedText) -> tuple[Row, int]:
        """One row, and the number of tokens cut from the texts before the document."""
        frame, texts = self.frame, [tokenize_text(text, self.tokenizer).ids for text in vip_texts]
        if len(texts) > 1 and not len(frame.between):
            raise ModelError(f"{type(self.tokenizer).__name__} has no separator to close the choices with")
        # The tokenizer's separators of two texts after the question and the last choice, else one separator.
        closing = [frame.between[:1] if 0 < i < len(texts) - 1 else frame.between for i in range(len(texts))]
        specials = len(frame.before) + sum(map(len, closing)) + len(frame.after)
        longest = longest_that_fit([len(ids) for ids in texts], max(self.max_length // 2 - specials, 1))
        if longest < 1:
            raise UsageError(
                f"example {id!r}: {len(texts) - 1} choices need more than half of --length {self.max_length}: set a "
                "larger one, or train with fewer (--max-choices)"
            )
        parts, closed, places = [frame.before], len(frame.before), []
        for ids, end in zip(texts, closing, strict=True):
            parts += [ids[:longest], end]
            places.append(closed + min(len(ids), longest))
            closed = places[-1] + len(end)
        vips = np.concatenate(parts)
        room = self.max_length - len(vips) - len(frame.after)
        ids = np.concatenate([vips, document.ids[:room], frame.after])
        types, offsets = np.zeros_like(ids), np.full((len(ids), 2), -1, dtype=np.int32)
        types[len(vips) :] = frame.second_type
        offsets[len(vips) : len(ids) - len(frame.after)] = document.offsets[:room]
        return Row(ids, types, offsets, len(vips), tuple(places[1:])), sum(max(len(ids) - longest, 0) for ids in texts)

    def _target(self, example: Example) -> tuple[Ints, int]:
        """The first answer as tokens with the end token, and the number of tokens cut."""
        text = example.answers[0] if example.answers else UNANSWERABLE
        ids = np.asarray(self.tokenizer(text_target=text, verbose=False)["input_ids"], dtype=np.int32)
        cut = max(len(ids) - self.target_length, 0)
        if cut:  # keep the end token, or the model never learns to stop
            ids = np.concatenate([ids[: self.target_length - 1], ids[-1:]])
        return ids, cut


def longest_that_fit(lengths: Sequence[int], room: int) -> int:
    """The most tokens that each text may keep if all are to fit; 0 if one each is too much."""
    most = max(*lengths, 1)
    while most and sum(min(length, most) for length in lengths) > room:
        most -= 1
    return most


def token_spans(char_spans: Sequence[tuple[int, int]], offsets: Ints) -> list[tuple[int, int]]:
    """(first, last) tokens that touch each character range, both included, without repeats, sorted.

    A range that touches no token, such as a space, is left out.
    """
    starts, ends = offsets[:, 0], np.maximum.accumulate(offsets[:, 1])
    found = set()
    for start, end in char_spans:
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(starts, end, side="left")) - 1
        if first <= last:
            found.add((first, last))
    return sorted(found)
