"""`QaModel`: questions on tokens with a wrapped model, shared by the product, training and evaluation.

A document is read once into a tree, and each question is a small pass over it: the question has its own window, so the
first layers' states of the document do not depend on it. The VIPs are [CLS] question [SEP]; the context is document
[SEP] or, with `framed_windows`, [CLS] window [SEP] for every window. A model trained for it takes a second look at the
passages it found. It reads a short text in windows with the question, without a tree: that is faster, and exact.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from vcc.config import VccConfig
from vcc.core.cut import Cut
from vcc.core.rows import Rows
from vcc.core.tree import SegmentTree, flatten_tree, project_tree
from vcc.data.answers import ScoredSpan, without_overlaps
from vcc.data.collate import pad_ids
from vcc.data.features import Frame, tokenize_text
from vcc.data.framing import framed, framed_places
from vcc.encode import Step, Watch, ask, in_windows, read_once
from vcc.errors import ModelError, UsageError
from vcc.hosts.eight_bits import EightBitHost, eight_bit_host
from vcc.hosts.host_of import host_of
from vcc.qa.agreement import View
from vcc.qa.calibration import Calibration
from vcc.qa.clauses import CLAUSES
from vcc.qa.second_look import (
    Looks,
    best_nodes,
    every_passage,
    for_clauses,
    for_short_texts,
    look_again,
    room_for_passage,
)
from vcc.qa.settings import QaSettings, load_settings
from vcc.qa.windows import Bools, ChosenPassage, Found, Ints, WindowReader, best_found, token_types
from vcc.qa.words import best_matches

READ_AT_ONCE = {"cpu": 4096, "cuda": 32_768}  # tokens; twice as many are a fifth slower on a CPU
BATCHES = 8  # of windows between two reports of progress
SHORT = 3  # windows; in a longer text, finding and reading passages costs less than reading every window
ASKED_AT_ONCE = {"cpu": 2**25, "cuda": 2**30}  # bytes of a batch's trees; more are faster on a GPU only

Progress = Callable[[int, int], None]  # tokens read or questions asked, and all of them


def no_progress(done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class Asked:
    """The spans of each question, best first and without overlaps, and statistics."""

    found: tuple[tuple[Found, ...], ...]
    rows: tuple[tuple[int, int], ...]  # (layer, rows of document and question it saw), for each compressed layer
    passages: int  # read in windows, for all questions together


class FirstReading(NamedTuple):
    """What the compressed layers find for a batch of questions: spans, and the best-scored nodes."""

    spans: list[list[Found]]
    nodes: list[list[ScoredSpan]]


@dataclass
class Seen:
    """Records the maximum rows of each layer, and the last layer's cut."""

    also: Watch | None = None
    rows: dict[int, int] = field(default_factory=dict)
    cut: Cut | None = None

    def __call__(self, step: Step) -> None:
        self.rows[step.layer] = max(self.rows.get(step.layer, 0), step.rows)
        self.cut = step.cut
        if self.also is not None:
            self.also(step)

    @property
    def all_rows(self) -> tuple[tuple[int, int], ...]:
        return tuple(sorted(self.rows.items()))


@dataclass(frozen=True, eq=False)
class QaModel:
    """A wrapped question-answering model and its tokenizer. `read` once, `best_spans` many times."""

    model: Any
    tokenizer: Any
    precision: str = "float32"  # or "int8", or "auto": that where this machine is faster with it (`hosts.eight_bits`)

    def __post_init__(self) -> None:
        name = type(self.model).__name__
        host_of(self.model)  # raises if it is not wrapped
        modules: dict[str, Any] = dict(self.model.named_children())
        head = modules.get("qa_outputs")
        if not isinstance(head, nn.Linear) or head.out_features != 2:
            raise ModelError(f"{name} has no linear layer qa_outputs with 2 outputs: use a ...ForQuestionAnswering")
        if self.config.vip_window != "own":
            raise ModelError(
                f'{name} has vip_window={self.config.vip_window!r}: it must be "own", which makes the index of a '
                "document independent of the question"
            )
        if not self.tokenizer.is_fast:
            raise ModelError(f"{type(self.tokenizer).__name__} gives no character offsets: a fast tokenizer is needed")
        if self.tokenizer.cls_token_id is None:
            raise ModelError(f"{type(self.tokenizer).__name__} has no CLS token, which stands for 'no answer'")
        _ = self.settings  # raises if they are invalid

    @property
    def config(self) -> VccConfig:
        """The model's VCC settings."""
        return self.model.vcc

    @property
    def settings(self) -> QaSettings:
        """The question-answering settings of its configuration."""
        return load_settings(self.model.config)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @cached_property
    def host(self) -> Any:
        return self.fast or host_of(self.model)

    @cached_property
    def fast(self) -> EightBitHost | None:
        """The host in 8 bits, if it is wanted and possible."""
        return eight_bit_host(host_of(self.model), self.precision)

    @cached_property
    def frame(self) -> Frame:
        return Frame.of(self.tokenizer)

    @property
    def windows(self) -> WindowReader:
        """The same model on windows, for the second look."""
        return WindowReader(self.model, self.frame, self.config.window, self.settings.longest_answer, self.fast)

    @cached_property
    def clauses(self) -> frozenset[tuple[int, ...]]:
        """The tokens of the 41 questions of `vcc review`."""
        return frozenset(tuple(self.ids_of(clause.question).tolist()) for clause in CLAUSES)

    def knows(self, question: Ints) -> bool:
        """Whether a question is one of the clauses' and the model was trained on them: they have their own
        calibration."""
        return self.settings.clause_calibration is not None and tuple(question.tolist()) in self.clauses

    def looks_for(self, question: Ints, n: int, top: int = 1) -> Looks:
        """How many second looks a question with `top` answers gets in a document of n tokens."""
        most = self.settings.second_looks
        if self.knows(question):
            return for_clauses(most, top > 1)
        return for_short_texts(most) if n <= most * self.config.window else Looks(most)

    def is_short(self, n: int) -> bool:
        """Whether a text of n tokens is read in windows with each question. Only clauses may need its tree."""
        return self.settings.second_looks > 0 and n <= SHORT * self.config.window

    def read_whole(self, question: Ints, n: int, thorough: bool = False) -> list[int]:
        """Return the starts of passages that cover a text of n tokens, if it is short or is to be read thoroughly; none
        if a question needs the tree.

        A clause is often absent, which the tree tells for less than several windows.
        """
        size = room_for_passage(question, self.windows)
        by_tree = not self.is_short(n) or (n > size and self.knows(question))
        return every_passage(n, size) if size and (thorough or not by_tree) else []

    def calibration_of(self, question: Ints) -> Calibration:
        """The calibration of a question's scores."""
        settings = self.settings
        own = settings.clause_calibration if self.knows(question) else None
        return own or settings.calibration

    def ids_of(self, question: str) -> Ints:
        """The tokens of a question, without special ones."""
        ids = tokenize_text(question, self.tokenizer).ids
        if not len(ids):
            raise UsageError(f"question {question!r} has no words")
        return ids

    def places(self, n: int) -> Ints:
        """(n,) the places of a document's n tokens among those that are read."""
        return framed_places(n, self.config.window, self.frame) if self.settings.framed_windows else np.arange(n)

    def read(self, documents: Sequence[Ints], progress: Progress = no_progress) -> SegmentTree:
        """The trees of whole documents; without gradients, read in batches of windows."""
        window, around = self.config.window, self.settings.framed_windows
        full = [framed(ids, window, self.frame) if around else [*ids, *self.frame.after] for ids in documents]
        ids, lengths, total = pad_ids(full), sizes(full), max(map(len, documents))
        at_once = READ_AT_ONCE.get(self.device.type, 4096)
        step = ids.shape[1] if torch.is_grad_enabled() else max(at_once // window, 1) * window

        def pieces() -> Iterator[Rows]:
            progress(0, total)
            for first in range(0, ids.shape[1], step):
                yield self.rows(ids[:, first : first + step], lengths, self.frame.second_type, first)
                progress(min(first + step, total), total)

        return read_once(self.host, pieces(), self.config)

    def rows(self, ids: Tensor, lengths: Tensor, token_type: int, first: int = 0) -> Rows:
        """Embedded tokens (B, n), starting at place `first` of texts of `lengths` (B,) tokens; the rest is padding."""
        ids, lengths = ids.to(self.device), lengths.to(self.device)
        places = torch.arange(first, first + ids.shape[1], device=self.device).expand_as(ids)
        real = places < lengths[:, None]
        types = token_types(self.model.config, torch.full_like(ids, token_type)) if token_type else {}
        hidden = self.host.embed({"input_ids": ids, **types}, torch.where(real, places, -1))
        return Rows(hidden, real.float(), places.float())

    def vips(self, questions: Sequence[Ints]) -> Rows:
        """The questions with their special tokens, (Q, p).

        Their positions count up to 0, where the document's begin, as if the question preceded it.
        """
        full = [np.concatenate([self.frame.before, ids, self.frame.between]) for ids in questions]
        rows = self.rows(pad_ids(full, self.tokenizer.pad_token_id or 0), sizes(full), 0)
        return replace(rows, positions=rows.positions - rows.counts.sum(1, keepdim=True))

    def question_vectors(self, questions: Sequence[Ints]) -> Tensor:
        """(Q, D) the mean of each question's tokens after the window layers, of length 1: finding compares it."""
        vips = in_windows(self.host, self.vips(questions), self.config.resolved(self.host.num_layers))
        return normalize((vips.hidden.float() * vips.counts[..., None]).sum(1), dim=1)

    def logits(
        self,
        tree: SegmentTree,
        lengths: Sequence[int],
        questions: Sequence[Ints],
        owner: Tensor | None = None,
        watch: Watch | None = None,
        config: VccConfig | None = None,
    ) -> Tensor:
        """Start and end logits (Q, 1 + n, 2): of no answer at place 0, then of each token of the question's document.

        The documents have `lengths` tokens. Question i belongs to document owner[i]; without `owner` there is only one.
        Beyond the end of a shorter document, logits are -inf. `config` replaces the model's VCC settings.
        """
        own = torch.tensor(lengths, device=self.device)
        if owner is not None:
            owner = owner.to(self.device)
            own = own[owner]
        vips, tree = ask(self.host, self.vips(questions), tree, config or self.config, watch, owner)
        with torch.autocast(self.device.type, enabled=False):  # the tree has a wider dtype than the layers
            none, tokens = self.head(vips.hidden[:, :1]), self.head_of_tree(tree)
        n = max(lengths)
        tokens = tokens[:, torch.as_tensor(self.places(n), device=self.device)]
        beyond = torch.arange(n, device=self.device) >= own[:, None]  # (Q, n), or (1, n) for all questions
        return torch.cat([none.float(), tokens.float().masked_fill(beyond[..., None], -torch.inf)], 1)

    def head(self, hidden: Tensor) -> Tensor:
        """(B, n, D) after the last layer -> (B, n, 2)."""
        head = self.model.qa_outputs
        return head(self.host.finish(hidden.to(head.weight.dtype)))

    def head_of_tree(self, tree: SegmentTree) -> Tensor:
        """The same for every token of a tree."""
        head = self.model.qa_outputs
        # Nothing follows BERT's last layer and the head is linear: add up 2 numbers per token instead of D.
        if self.host.finish_is_identity:
            return flatten_tree(project_tree(tree, head.weight.to(tree.means.dtype).t())).hidden + head.bias
        return self.head(flatten_tree(tree).hidden)

    @torch.inference_mode()
    def best_spans(
        self,
        tree: SegmentTree | None,
        ids: Ints,
        questions: Sequence[Ints],
        top: int = 1,
        blank: Bools | None = None,
        watch: Watch | None = None,
        progress: Progress = no_progress,
        thorough: bool = False,
    ) -> Asked:
        """The best spans of a document, with tokens `ids` (n,) and `tree`, for each question: at least `top`.

        Batches are as large as memory allows. No answer starts or ends at a `blank` (n,) token. The tree of a short
        text may be None: if it is needed, it is read. `thorough`: every window is read with every question that leaves
        room in it.
        """
        whole = [self.read_whole(question, len(ids), thorough) for question in questions]
        waiting = [question for question, starts in zip(questions, whole, strict=True) if not starts]
        asked = Asked((), (), 0)
        if waiting:
            asked = self.by_tree(self.read([ids]) if tree is None else tree, ids, waiting, top, blank, watch, progress)
        if not any(whole):
            return asked
        read, others = self.by_windows(ids, questions, whole, top, blank, progress), iter(asked.found)
        found = tuple(spans if starts else next(others) for spans, starts in zip(read, whole, strict=True))
        return Asked(found, asked.rows, asked.passages + sum(map(len, whole)))

    def by_windows(
        self,
        ids: Ints,
        questions: Sequence[Ints],
        whole: Sequence[Sequence[int]],
        top: int,
        blank: Bools | None,
        progress: Progress,
    ) -> list[tuple[Found, ...]]:
        """The best spans of the passages that start at the places `whole` of each question."""
        most, windows = max(self.settings.candidates, top), self.windows
        step = max(1, windows.at_once * BATCHES // max(map(len, whole)))  # questions between two reports of progress
        found: list[tuple[Found, ...]] = []
        for first in range(0, len(questions), step):
            some = questions[first : first + step]
            chosen = [
                ChosenPassage(i, start, room_for_passage(question, windows))
                for i, question in enumerate(some)
                for start in whole[first + i]
            ]
            views: list[list[View]] = [[] for _ in some]
            for passage, spans in zip(chosen, windows.look_at_each(ids, some, chosen, most, blank), strict=True):
                views[passage.question].append(View(passage.start, passage.start + passage.size, spans))
            for question, own in zip(some, views, strict=True):
                found.append(tuple(without_overlaps(self.looks_for(question, len(ids), top).judged(own), most)))
            progress(len(found), len(questions))
        return found

    def by_tree(
        self,
        tree: SegmentTree,
        ids: Ints,
        questions: Sequence[Ints],
        top: int,
        blank: Bools | None,
        watch: Watch | None,
        progress: Progress,
    ) -> Asked:
        """The best spans of a text of any length: the tree finds passages, which are then read."""
        seen = Seen(watch)
        settings, most = self.settings, max(self.settings.candidates, top)

        def first_reading(batch: Sequence[Ints]) -> FirstReading:
            logits = self.logits(tree, [len(ids)], batch, watch=seen)
            if blank is not None:
                logits[:, 1:].masked_fill_(torch.as_tensor(blank, device=logits.device)[:, None], -torch.inf)
            spans = best_found(logits, [0] * len(batch), most, settings.longest_answer)
            if seen.cut is None or not settings.second_looks:
                return FirstReading(spans, [[] for _ in batch])
            return FirstReading(spans, best_nodes(seen.cut, tree, self.places(len(ids)), settings.nodes))

        size = sum(part.nbytes for part in (tree.means, *tree.differences))
        room = ASKED_AT_ONCE.get(self.device.type, 0)
        if self.device.type == "cuda":
            room = max(room, torch.cuda.mem_get_info(self.device)[0] // 8)
        at_a_time = max(1, room // max(size, 1))
        found, passages = self.in_two_readings(first_reading, at_a_time, ids, questions, top, blank, progress)
        return Asked(found, seen.all_rows, passages)

    def in_two_readings(
        self,
        first_reading: Callable[[Sequence[Ints]], FirstReading],
        at_a_time: int,
        ids: Ints,
        questions: Sequence[Ints],
        top: int,
        blank: Bools | None = None,
        progress: Progress = no_progress,
    ) -> tuple[tuple[tuple[Found, ...], ...], int]:
        """At least `top` spans for each question, if there are as many, and the number of second looks.

        `first_reading` asks a batch of questions; a model with second looks then reads the passages found again.
        """
        found: list[tuple[Found, ...]] = []
        passages = 0
        for first in range(0, len(questions), at_a_time):
            batch = questions[first : first + at_a_time]
            spans, number = self.second_look(ids, batch, first_reading(batch), top, blank)
            passages += number
            found += map(tuple, spans)
            progress(len(found), len(questions))
        return tuple(found), passages

    def second_look(
        self, ids: Ints, batch: Sequence[Ints], first: FirstReading, top: int, blank: Bools | None
    ) -> tuple[list[list[Found]], int]:
        """What follows the first reading of a batch: the best spans, and the number of passages read again."""
        if not self.settings.second_looks:
            return first.spans, 0
        matches, most = best_matches(ids, batch, self.settings.matches), max(self.settings.candidates, top)
        looks = [self.looks_for(question, len(ids), top) for question in batch]
        return look_again(self.windows, ids, batch, *first, matches, looks, most, blank)


def sizes(rows: Sequence[Any]) -> Tensor:
    return torch.tensor([len(row) for row in rows])
