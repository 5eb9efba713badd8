"""`vcc.pipeline`: any question-answering checkpoint on texts of any length.

The passages that may answer a question are found by its words or, for several questions to one text, by the bundled
model; the given model reads them in windows, as it was trained to: it is neither wrapped nor trained. Arguments and
dictionaries are those of transformers' former "question-answering" pipeline. Without a model, the bundled one also
reads.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
import torch

from vcc.data.answers import ScoredSpan, without_overlaps
from vcc.data.features import Frame, TokenizedText, tokenize_text
from vcc.documents.asker import Asker
from vcc.documents.index import Index
from vcc.documents.shipped import load_asker
from vcc.documents.text import Part, Text
from vcc.errors import ModelError, UsageError
from vcc.hosts.forward.wrapped import Wrapped
from vcc.qa.model import FirstReading, QaModel
from vcc.qa.second_look import passages_to_reread, with_a_chance
from vcc.qa.windows import WINDOWS_AT_ONCE, Bools, Found, Ints, batch, best_found, room, window_logits
from vcc.qa.words import best_matches
from vcc.wrapping import unwrap

FINDERS = ("auto", "words", "model")
SEVERAL = 8  # questions to one context
MATCHES = 40  # stretches that share words with a question
KEPT = 4  # contexts whose index stays in memory: several questions to one context read it once
Answered = dict[str, Any]  # answer, score, start, end


@dataclass(frozen=True)
class ReadingOptions:
    """The arguments of transformers' former pipeline, with its defaults, and `passages`.

    The bundled model, and any other that VCC wraps for questions, has its own windows: for these only `top_k` and
    `handle_impossible_answer` count.
    """

    top_k: int = 1
    handle_impossible_answer: bool = False
    max_answer_len: int = 15  # tokens
    doc_stride: int = 128  # tokens that neighbouring windows share
    max_seq_len: int = 384  # tokens of a window
    max_question_len: int = 64  # tokens
    align_to_words: bool = True
    passages: int = 8  # windows read for a question; 0: all
    finder: str = "auto"  # words: passages that share words with the question; model: the bundled model's choice

    def by_words(self, questions: int) -> bool:
        """Whether words choose the passages for some questions to one context. Reading it once with the bundled model
        costs more than half of reading all windows, which pays for several questions only."""
        return self.finder == "words" or (self.finder == "auto" and questions < SEVERAL)

    def __post_init__(self) -> None:
        least = {"top_k": 1, "max_answer_len": 1, "doc_stride": 0, "max_seq_len": 16, "max_question_len": 1}
        for name, rule in {**least, "passages": 0}.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < rule:
                raise UsageError(f"{name} is {value!r}: it must be a whole number, at least {rule}")
        if self.finder not in FINDERS:
            raise UsageError(f"finder is {self.finder!r}: it must be {', '.join(FINDERS)}")

    def changed(self, given: Mapping[str, Any]) -> "ReadingOptions":
        unknown = given.keys() - vars(self).keys()
        if unknown:
            raise UsageError(f"{', '.join(sorted(unknown))}: unknown; the options are {', '.join(vars(self))}")
        return replace(self, **{name: value for name, value in given.items() if value is not None})


class Finder(QaModel):
    """The first reading alone: instead of answers, the places to read for each question, best first."""

    def read_whole(self, question: Ints, n: int, thorough: bool = False) -> list[int]:
        """Places are wanted in short texts, too."""
        return []

    def second_look(
        self, ids: Ints, batch: Sequence[Ints], first: FirstReading, top: int, blank: Bools | None
    ) -> tuple[list[list[Found]], int]:
        matches, places = best_matches(ids, batch, self.settings.matches), []
        for pointers in zip(*first, matches, strict=True):
            in_turn = (one for turn in zip_longest(*with_a_chance(*pointers)) for one in turn if one is not None)
            places.append([Found(one.first, one.last, one.score, 0.0) for one in in_turn])
        return places, 0


class QuestionAnswering:
    """Answers questions on contexts: `answering(question=..., context=...)`. Made by `vcc.pipeline`."""

    def __init__(self, asker: Asker, reader: "PlainReader | None", options: ReadingOptions) -> None:
        self.asker, self.reader, self.options = asker, reader, options
        self.finder = Finder(asker.model, asker.tokenizer)
        self.indexes: OrderedDict[str, Index] = OrderedDict()  # by context

    def __call__(
        self,
        *examples: Any,
        question: str | Sequence[str] | None = None,
        context: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Any:
        """Return {"answer", "score", "start", "end"}; with top_k above 1 a list of them; for lists, a list of either.

        Takes question= and context=, each one text or a list, or dictionaries with these two keys.
        """
        wanted = self.options.changed(options)
        asked, several = as_pairs(examples, question, context)
        by_context: dict[str, list[int]] = {}
        for number, (_, text) in enumerate(asked):
            by_context.setdefault(text, []).append(number)
        results: dict[int, list[Answered]] = {}
        for text, numbers in by_context.items():
            questions = [asked[number][0] for number in numbers]
            results.update(zip(numbers, self.answers(questions, text, wanted), strict=True))
        shaped = [results[number] if wanted.top_k > 1 else results[number][0] for number in range(len(asked))]
        return shaped if several else shaped[0]

    def answers(self, questions: Sequence[str], context: str, options: ReadingOptions) -> list[list[Answered]]:
        """The best answers to each question, at least one."""
        if self.reader is None:
            return self.own_answers(questions, context, options)
        tokens = tokenize_text(context, self.reader.tokenizer)
        if not len(tokens.ids):
            raise UsageError("the context holds no text that the tokenizer knows")
        asked = [self.reader.question_ids(question, options) for question in questions]
        all_windows = [self.reader.all_windows(len(tokens.ids), ids, options) for ids in asked]
        long = [bool(options.passages) and len(starts) > options.passages for starts in all_windows]
        wanted = [(q, ids) for q, ids, finding in zip(questions, asked, long, strict=True) if finding]
        chosen = iter(self.pointers(context, tokens, wanted, options))
        found = []
        for ids, starts, finding in zip(asked, all_windows, long, strict=True):
            if finding:
                size = self.reader.room(ids, options)
                starts = sorted(passages_to_reread([next(chosen)], size, len(tokens.ids), options.passages))
            found.append(self.reader.read(ids, context, tokens, starts or all_windows[0][:1], options))
        return found

    def pointers(
        self, context: str, tokens: TokenizedText, asked: Sequence[tuple[str, Ints]], options: ReadingOptions
    ) -> list[list[ScoredSpan]]:
        """Where to read for each question, best first, as tokens of the reader."""
        found = best_matches(tokens.ids, [ids for _, ids in asked], MATCHES)
        finding = [number for number in range(len(asked)) if not found[number] or not options.by_words(len(asked))]
        for number, places in zip(finding, self.places([asked[n][0] for n in finding], context), strict=True):
            found[number] = [tokens_of(place, tokens) for place in places]
        return found

    def own_answers(self, questions: Sequence[str], context: str, options: ReadingOptions) -> list[list[Answered]]:
        """By the product: a wrapped model reads, finds and answers."""
        threshold = None if options.handle_impossible_answer else 0.0
        index = self.index(context)
        text = as_text(context)
        replies, _ = self.asker.replies_to(text, index, questions, options.top_k, threshold)
        shown = []
        for reply in replies:
            found = [as_answered(answer.text, answer.score, answer.start, answer.end) for answer in reply.answers]
            doubtful = reply.nearest.score if reply.nearest else 0.0
            shown.append(found or [as_answered("", 1 - doubtful, 0, 0)])
        return shown

    def places(self, questions: Sequence[str], context: str) -> list[list[tuple[int, int]]]:
        """The characters of the context to read for each question, best first."""
        if not questions:
            return []
        index = self.index(context)
        ids = [self.finder.ids_of(question) for question in questions]
        found = index.spans(self.finder, ids).found
        return [
            [(int(index.offsets[one.first, 0]), int(index.offsets[one.last, 1])) for one in places] for places in found
        ]

    def index(self, context: str) -> Index:
        """The context as our model has read it; the latest ones are kept."""
        if context not in self.indexes:
            self.indexes[context] = self.asker.index(as_text(context))
            while len(self.indexes) > KEPT:
                self.indexes.popitem(last=False)
        self.indexes.move_to_end(context)
        return self.indexes[context]


@dataclass(frozen=True, eq=False)
class PlainReader:
    """A question-answering model that reads windows, as it was trained to."""

    model: Any
    tokenizer: Any

    def __post_init__(self) -> None:
        if not getattr(self.tokenizer, "is_fast", False):
            raise ModelError(f"{type(self.tokenizer).__name__} gives no character offsets: a fast tokenizer is needed")
        if self.tokenizer.cls_token_id is None or len(self.frame.before) != 1:
            raise ModelError(f"{type(self.tokenizer).__name__} puts no CLS token first, which stands for no answer")

    @cached_property
    def frame(self) -> Frame:
        return Frame.of(self.tokenizer)

    def question_ids(self, question: str, options: ReadingOptions) -> Ints:
        ids = tokenize_text(question, self.tokenizer).ids
        if not len(ids):
            raise UsageError(f"question {question!r} holds no word")
        if len(ids) > options.max_question_len:
            raise UsageError(f"the question has {len(ids)} tokens: max_question_len is {options.max_question_len}")
        if self.room(ids, options) <= 0:
            raise UsageError(f"the question has {len(ids)} tokens, which fill max_seq_len {options.max_seq_len}")
        return ids

    def room(self, question: Ints, options: ReadingOptions) -> int:
        """Tokens of a context that fit into a window."""
        return room(question, self.frame, min(options.max_seq_len, self.tokenizer.model_max_length))

    def all_windows(self, n: int, question: Ints, options: ReadingOptions) -> list[int]:
        """Where the windows over a context of n tokens start."""
        size = self.room(question, options)
        step = max(size - min(options.doc_stride, size // 2), 1)
        return [0, *range(step, max(n - size + step, 1), step)]

    @torch.inference_mode()
    def read(
        self, question: Ints, context: str, tokens: TokenizedText, starts: Sequence[int], options: ReadingOptions
    ) -> list[Answered]:
        """The best answers in the windows at `starts`. A score is the probability of start and end in the window."""
        size, spans = self.room(question, options), []
        none = 1.0
        at_once = WINDOWS_AT_ONCE.get(self.model.device.type, 8)
        for at in range(0, len(starts), at_once):
            some = starts[at : at + at_once]
            given = batch([(question, tokens.ids[start : start + size]) for start in some], self.frame)
            chances = window_logits(self.model, given).log_softmax(1)
            moved = [1 + start - first for start, first in zip(some, given.first.tolist(), strict=True)]
            found = best_found(chances, moved, options.top_k, options.max_answer_len)
            spans += [ScoredSpan(one.first, one.last, one.score + one.none) for row in found for one in row]
            none = min(none, math.exp(float(chances[:, 0].sum(1).min())))
        edges = [(span, span_edges(context, tokens, span, options)) for span in without_overlaps(spans, options.top_k)]
        answers = [as_answered(context[a:b], math.exp(span.score), a, b) for span, (a, b) in edges]
        if options.handle_impossible_answer:
            answers = sorted([*answers, as_answered("", none, 0, 0)], key=lambda one: -one["score"])
        return answers[: options.top_k]


def pipeline(model: Any = None, tokenizer: Any = None, **options: Any) -> QuestionAnswering:
    """Return a function that answers questions on contexts of any length.

    `model`: a question-answering model or its name, with its `tokenizer`; None is the bundled model. `options`: see
    `ReadingOptions`; each can be changed in a call.
    """
    wanted = ReadingOptions().changed(options)
    if model is None:
        if tokenizer is not None:
            raise UsageError("a tokenizer needs its model: give model too")
        return QuestionAnswering(load_asker(), None, wanted)
    if isinstance(model, str):
        from transformers import AutoModelForQuestionAnswering, AutoTokenizer

        name = model
        model = AutoModelForQuestionAnswering.from_pretrained(name).eval()
        tokenizer = AutoTokenizer.from_pretrained(name) if tokenizer is None else tokenizer
    if isinstance(tokenizer, str):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(tokenizer)
    if tokenizer is None:
        raise UsageError(f"{type(model).__name__} needs its tokenizer: give tokenizer too")
    if isinstance(model, Wrapped) and model.vcc.vip_window == "own":
        return QuestionAnswering(Asker(model, tokenizer), None, wanted)
    plain: Any = unwrap(model) if isinstance(model, Wrapped) else model  # type: ignore[type-var]
    return QuestionAnswering(load_asker(), PlainReader(plain, tokenizer), wanted)


def as_pairs(examples: Sequence[Any], question: Any, context: Any) -> tuple[list[tuple[str, str]], bool]:
    """Questions with their contexts, and whether a list of them was given."""
    if question is None and context is None and examples:
        given = examples[0] if len(examples) == 1 else list(examples)
        several = isinstance(given, (list, tuple))
        wanted: list[Any] = list(given) if several else [given]
        if not all(isinstance(one, Mapping) and {"question", "context"} <= one.keys() for one in wanted):
            raise UsageError("an example must be a dictionary with question and context")
        pairs = [(one["question"], one["context"]) for one in wanted]
    else:
        if examples or question is None or context is None:
            raise UsageError("give question and context, or dictionaries with both")
        several = not (isinstance(question, str) and isinstance(context, str))
        questions = [question] if isinstance(question, str) else list(question)
        contexts = [context] * len(questions) if isinstance(context, str) else list(context)
        questions = questions * len(contexts) if isinstance(question, str) else questions
        if len(questions) != len(contexts):
            raise UsageError(f"{len(questions)} questions and {len(contexts)} contexts: their numbers must be the same")
        pairs = list(zip(questions, contexts, strict=True))
    for pair in pairs:
        for name, text in zip(("question", "context"), pair, strict=True):
            if not isinstance(text, str) or not text.strip():
                raise UsageError(f"{name} is {text!r}: it must be a text that holds a word")
    return pairs, several


def as_text(context: str) -> Text:
    """A context as a text, every character as it is: answers count them."""
    return Text(context, "context", "context", (Part("", 0, len(context)),))


def as_answered(answer: str, score: float, start: int, end: int) -> Answered:
    return {"score": float(score), "start": start, "end": end, "answer": answer}


def tokens_of(place: tuple[int, int], tokens: TokenizedText) -> ScoredSpan:
    """The tokens of a stretch of characters."""
    first = int(np.searchsorted(tokens.offsets[:, 1], place[0], side="right"))
    last = int(np.searchsorted(tokens.offsets[:, 0], place[1], side="left")) - 1
    last = max(min(last, len(tokens.ids) - 1), 0)
    return ScoredSpan(min(first, last), last, 0.0)


def span_edges(context: str, tokens: TokenizedText, span: ScoredSpan, options: ReadingOptions) -> tuple[int, int]:
    """The characters of a span, without blanks at its ends and with whole words."""
    start, end = int(tokens.offsets[span.first, 0]), int(tokens.offsets[span.last, 1])
    words = context[start:end]
    start += len(words) - len(words.lstrip())
    end = start + len(words.strip())
    if options.align_to_words and start < end:
        while start and context[start].isalnum() and context[start - 1].isalnum():
            start -= 1
        while end < len(context) and context[end].isalnum() and context[end - 1].isalnum():
            end += 1
    return start, end
