"""Ask a document: it is read once into an `Index`; each question is a small pass over it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vcc.core.cut import Cut, child_nodes, visited_nodes
from vcc.core.tree import SegmentTree
from vcc.data.answers import ScoredSpan
from vcc.documents.answer import Reply, answer_at, merge_overlaps
from vcc.documents.candidates import candidates
from vcc.documents.facts import Facts
from vcc.documents.index import Index, MemoryIndex, TemporaryFolder, check_can_be_shown, kind_for
from vcc.documents.layer_view import LayerView, openness_of
from vcc.documents.text import Text
from vcc.encode import Step
from vcc.errors import ModelError, UsageError
from vcc.qa.model import Asked, Progress, QaModel, no_progress

UNLIKELY = 0.01  # further answers with a smaller score are dropped


@dataclass(frozen=True, eq=False)
class Asker:
    """A wrapped question-answering model and its tokenizer, for texts. `index` once, `replies_to` many times."""

    model: Any
    tokenizer: Any
    precision: str = "float32"  # of `QaModel`
    qa: QaModel = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "qa", QaModel(self.model, self.tokenizer, self.precision))  # raises if they do not fit

    def index(self, document: Text, progress: Progress = no_progress, place: TemporaryFolder | None = None) -> Index:
        """Read the whole document. If it is too long for memory, the index is written to `place`."""
        return kind_for(document).read(document, self.qa, progress, place)

    def replies_to(
        self,
        document: Text,
        index: Index,
        questions: Sequence[str],
        top: int = 3,
        threshold: float | None = None,
        progress: Progress = no_progress,
        thorough: bool = False,
    ) -> tuple[tuple[Reply, ...], Facts]:
        """Answer all questions, in batches that fit into memory. A reply without answers means the model found none.

        `threshold`: the lowest score of an answer, from 0 to 1; by default the model's own setting. `thorough`: read
        every window with every question.
        """
        check_wanted(top, threshold)
        start = time.perf_counter()
        asked = self.find(index, questions, top, progress, thorough)
        return self.replies(document, index, questions, asked, top, threshold), facts_of(index, asked, start)

    def find(
        self,
        index: Index,
        questions: Sequence[str],
        top: int = 3,
        progress: Progress = no_progress,
        thorough: bool = False,
    ) -> Asked:
        """The candidate spans for each question, as tokens."""
        asked = [self.qa.ids_of(question) for question in questions]
        if thorough:
            assert isinstance(index, MemoryIndex)
            return index.spans(self.qa, asked, top, progress, thorough=True)
        return index.spans(self.qa, asked, top, progress)

    def replies(
        self,
        document: Text,
        index: Index,
        questions: Sequence[str],
        asked: Asked,
        top: int,
        threshold: float | None,
    ) -> tuple[Reply, ...]:
        """Turn the spans found for each question into a reply."""
        found = zip(questions, asked.found, strict=True)
        return tuple(self.reply(document, index, question, spans, top, threshold) for question, spans in found)

    def reply(
        self,
        document: Text,
        index: Index,
        question: str,
        found: Sequence[ScoredSpan],
        top: int,
        threshold: float | None = None,
    ) -> Reply:
        """The best spans with their scores; if none reaches the threshold, the best one as doubtful."""
        if not found:
            return Reply(question, ())
        settings, ids = self.qa.settings, self.qa.ids_of(question)
        needed = settings.threshold if threshold is None else threshold
        edges, leads = [place(index, span) for span in found], [span.score for span in found]
        if not self.qa.knows(ids):  # clauses are shown as they were found
            edges, leads = map(list, zip(*candidates(question, document.text, edges, leads), strict=True))
        chances = self.qa.calibration_of(ids).probabilities(leads, index.tokens)
        answers = [
            answer_at(document, *own, chance)
            for i, (own, chance) in enumerate(zip(edges, chances, strict=True))
            if i == 0 or chance >= max(UNLIKELY, needed)
        ]
        kept = merge_overlaps((answer for answer in answers if answer.text), top)
        if kept and kept[0].score < needed:
            doubtful = kept[0].score >= settings.doubt
            return Reply(question, (), nearest=replace(kept[0], sure=False) if doubtful else None)
        return Reply(question, kept)

    @torch.inference_mode()
    def see(self, document: Text, index: Index, question: str, top: int = 3) -> tuple[LayerView, Facts]:
        """What each compressed layer opened for one question, and each token's share of the VIPs' attention."""
        check_can_be_shown(document)
        assert isinstance(index, MemoryIndex)
        start = time.perf_counter()
        steps: list[Step] = []
        asked = index.spans(self.qa, [self.qa.ids_of(question)], top, watch=steps.append)
        tree, places = index.read_tree(self.qa), self.qa.places(index.tokens)
        if not steps:  # a short text was answered without its tree
            self.qa.logits(tree, [index.tokens], [self.qa.ids_of(question)], watch=steps.append)
        cuts = [step.cut for step in steps if step.cut is not None]
        if not cuts or len(tree.scales) < 2:
            raise ModelError(f"the model has no compressed layers: scales={tree.scales}, {self.qa.config}")
        opened = [[nodes[0].cpu().numpy() for nodes in cut.opened_nodes] for cut in cuts]
        reading = LayerView(
            question,
            index.offsets,
            np.stack([openness_of(tree.scales, nodes, tree.length)[places] for nodes in opened]),
            np.stack([token_scores(tree, cut)[0].cpu().numpy()[places] for cut in cuts]),
            tuple(f"layer {step.layer + 1}" for step in steps if step.cut is not None),
            tree.scales,
            self.reply(document, index, question, asked.found[0], top).answers,
        )
        return reading, facts_of(index, asked, start)


def place(index: Index, span: ScoredSpan) -> tuple[int, int]:
    """The first and the last + 1 character of a span of tokens."""
    return int(index.offsets[span.first, 0]), int(index.offsets[span.last, 1])


def check_wanted(top: int, threshold: float | None) -> None:
    if top < 1:
        raise UsageError(f"top is {top}: it must be at least 1")
    if threshold is not None and not 0 <= threshold <= 1:
        raise UsageError(f"threshold is {threshold}: it must be a probability, from 0 to 1")


def facts_of(index: Index, asked: Asked, start: float) -> Facts:
    asking = time.perf_counter() - start
    return Facts(index.tokens, len(asked.found), asked.rows, index.seconds, asking, asked.passages)


def token_scores(tree: SegmentTree, cut: Cut) -> Tensor:
    """(B, n) the share of the VIPs' attention that falls on each token, from the scores of the visited nodes.

    Scores at a finer scale share out what the opened nodes had; a node's share spreads evenly over its tokens.
    """
    share = (cut.scores[0].double() / tree.scales[0]).repeat_interleave(tree.scales[0], 1)
    for depth in range(1, len(cut.scores)):
        size = tree.scales[depth]
        tokens = child_nodes(visited_nodes(tree, cut, depth), size)
        mass = share.gather(1, tokens).sum(1, keepdim=True)
        share = share.scatter(1, tokens, mass * (cut.scores[depth].double() / size).repeat_interleave(size, 1))
    return share
