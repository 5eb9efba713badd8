"""Ways to learn from the same pages with the same model: through VCC, with or without a second look, and in windows.

All read and ask like the product (`vcc.qa`); their losses are here. They share the head, start and end logits of each
token with "no answer" at the CLS token, and the loss, -log P(one of the right starts) and ends. A way has `losses` of a
batch of pages, one optimizer step each, and finds the best spans of a page for each of its questions.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from reproduction.loop import half_precision
from shipped_model.data import Ints, Page, Span, TokenQuestion
from shipped_model.practice import Teacher, all_apart, places_loss
from vcc.config import VccConfig
from vcc.core.tree import SegmentTree
from vcc.data.collate import NULL_POSITION
from vcc.encode import Step, Watch
from vcc.qa.model import QaModel
from vcc.qa.settings import QaSettings
from vcc.qa.windows import ChosenPassage, Found, WindowReader, batch, room, window_logits
from vcc.train.opening import opening_loss

BUDGETS = ((64, 32), (128, 32), (128, 32), (128, 64), (128, 64))  # drawn in training, so all of them work later


class Way(Protocol):
    @property
    def model(self) -> Any: ...

    @property
    def teacher(self) -> Teacher | None: ...

    @property
    def reader(self) -> Any: ...

    def losses(self, pages: Sequence[Page]) -> Iterator[Tensor]: ...

    def find(self, page: Page) -> Sequence[Sequence[Found]]: ...


def loss_at(
    logits: Tensor,
    places: Sequence[Sequence[Span]],
    each: bool = False,
    teacher: Teacher | None = None,
    said: Tensor | None = None,
) -> Tensor:
    """The loss of logits (Q, n, 2) with, for each question, the places of its right spans; none: no answer. `each`: of
    several answers each is to be found. `said`: the logits of a teacher."""
    none = ((NULL_POSITION, NULL_POSITION),)
    edges = torch.tensor([(i, *span) for i, spans in enumerate(places) for span in spans or none]).to(logits.device)
    right = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
    for side in (0, 1):
        right[edges[:, 0], edges[:, 1 + side], side] = True
    apart = torch.tensor([each and all_apart(spans) for spans in places], device=logits.device)
    logs = logits.float().log_softmax(1)
    losses = [places_loss(logs[..., side], right[..., side], apart) for side in (0, 1)]
    if teacher is not None and said is not None:
        theirs = said.float().log_softmax(1)
        losses = [teacher.loss(losses[side], logs[..., side], theirs[..., side]) for side in (0, 1)]
    return torch.stack(losses).mean()


@dataclass
class ReadByVcc:
    """Each page once, then all questions as one batch over the trees of their pages.

    A model with second looks learns them at the same time, from windows like those of a second look.
    """

    qa: QaModel
    choosing: float = 0.5  # weight of the loss that teaches which segments to open
    windows: int = 96  # in a step
    more: int = 1  # fast steps with only windows, per step with compressed pages
    each: bool = False  # whether each of several answers is learned, or one of them
    teacher: Teacher | None = None  # of windows
    reader: Any = None  # of windows in training, if it is not the model itself
    opened: list[float] = field(default_factory=list)  # for each answer, whether the last layer opened its segment

    def __post_init__(self) -> None:
        self.reader = self.reader or self.model

    @property
    def model(self) -> Any:
        return self.qa.model

    def forward(
        self, pages: Sequence[Page], config: VccConfig | None = None, watch: Watch | None = None
    ) -> tuple[Tensor, SegmentTree]:
        """Logits (Q, 1 + n, 2) of all questions of all pages, in order, and the trees of the pages."""
        owner = torch.tensor([i for i, page in enumerate(pages) for _ in page.questions])
        asked = [question.ids for page in pages for question in page.questions]
        tree = self.qa.read([page.ids for page in pages])
        return self.qa.logits(tree, [len(page.ids) for page in pages], asked, owner, watch, config), tree

    def losses(self, pages: Sequence[Page]) -> Iterator[Tensor]:
        questions = [question for page in pages for question in page.questions]
        steps: list[Step] = []
        config = replace(self.qa.config, budget=random.choice(BUDGETS))
        with half_precision(self.model.device):
            logits, tree = self.forward(pages, config, steps.append)
        spans = loss_at(logits, [[(1 + a, 1 + b) for a, b in question.spans] for question in questions], self.each)
        compressed = spans + self.choosing * self.choosing_loss(questions, tree, steps)
        if not self.qa.settings.second_looks:
            yield compressed
            return
        pointers = logits.detach()[:, 1:].amax(2).float().cpu().numpy()
        own = ReadByWindows(self.qa.windows, self.windows, each=self.each, teacher=self.teacher, reader=self.reader)
        windows = own.losses(pages, pointers)
        yield compressed + next(windows)
        yield from itertools.islice(windows, self.more)

    def choosing_loss(self, questions: Sequence[TokenQuestion], tree: SegmentTree, steps: Sequence[Step]) -> Tensor:
        """The segments of the answers should be opened."""
        gold = torch.zeros(len(questions), tree.counts[-1].shape[1], dtype=torch.bool)
        places = self.qa.places(tree.length).tolist()
        for i, question in enumerate(questions):
            for a, b in question.spans:
                gold[i, places[a] : places[b] + 1] = True
        return opening_loss([step.cut for step in steps if step.cut is not None], tree, gold.to(tree.means.device))

    @torch.inference_mode()
    def find(self, page: Page) -> Sequence[Sequence[Found]]:
        opened: list[Tensor] = []

        def watch(step: Step) -> None:
            if step.layer == self.qa.host.num_layers - 1 and step.cut is not None:
                opened.append(step.cut.opened_nodes[-1])

        tree = None if self.qa.is_short(len(page.ids)) else self.qa.read([page.ids])
        top = QaSettings().candidates  # several answers, as reviewers want them
        asked = self.qa.best_spans(tree, page.ids, [question.ids for question in page.questions], top, watch=watch)
        if tree is not None:
            places, nodes = self.qa.places(len(page.ids)), torch.cat(opened).cpu()
            self.opened += [
                float((nodes[i] == int(places[a]) // tree.scales[-2]).any())
                for i, question in enumerate(page.questions)
                for a, _ in question.spans
            ]
        return asked.found


@dataclass
class ReadByWindows:
    """Every question with every window of 512 tokens, 256 apart: the baseline."""

    windows: WindowReader
    batch: int = 128  # windows in a step
    stride: int = 256
    each: bool = False  # whether each of several answers is learned, or one of them
    teacher: Teacher | None = None
    reader: Any = None  # in training, if it is not the model itself

    def __post_init__(self) -> None:
        self.reader = self.reader or self.model

    @property
    def model(self) -> Any:
        return self.windows.model

    def room(self, question: Ints) -> int:
        return room(question, self.windows.frame, self.windows.size)

    def starts(self, n: int, room: int) -> list[int]:
        return list(range(0, max(n - room, 0) + self.stride, self.stride))

    def forward(self, pairs: Sequence[tuple[Ints, Ints]], model: Any = None) -> tuple[Tensor, list[int]]:
        """Logits (W, n, 2) of windows of a question and a passage, and where each passage starts in its window."""
        given = batch(pairs, self.windows.frame)
        with half_precision(self.model.device):
            return window_logits(model or self.reader, given), given.first.tolist()

    def losses(self, pages: Sequence[Page], pointers: Any = None) -> Iterator[Tensor]:
        """All windows with an answer, and as many without, among them one with the paragraph that an unanswerable
        question is about. pointers (Q, n): scores of a first reading; half of the windows without an answer are those
        that it would look at."""
        chosen: list[tuple[tuple[Ints, Ints], list[Span]]] = []
        asked = 0
        for page in pages:
            for q in page.questions:
                size = self.room(q.ids)
                inside = {
                    s: [(a - s, b - s) for a, b in q.spans if a >= s and b < s + size]
                    for s in self.starts(len(page.ids), size)
                }
                positive = [s for s in inside if inside[s]]
                negative = [s for s in inside if not inside[s]]
                number = max(2, len(positive))
                wrong: list[int] = []
                if pointers is not None and len(negative) > number:
                    best = {s: float(pointers[asked, s : s + size].max()) for s in negative}
                    wrong = random.sample(sorted(negative, key=best.__getitem__)[-4 * number :], number // 2)
                asked += 1
                rest = [s for s in negative if s not in wrong]
                some = positive + wrong + random.sample(rest, min(len(rest), number - len(wrong)))
                about = [s for s in inside if q.near is not None and s <= q.near < s + size - 64]
                if not positive and about:
                    some[0] = random.choice(about)
                chosen += [((q.ids, page.ids[s : s + size]), inside[s]) for s in some]
        random.shuffle(chosen)
        for at in range(0, len(chosen), self.batch):
            pairs, spans = zip(*chosen[at : at + self.batch], strict=True)
            logits, first = self.forward(pairs)
            said = None
            if self.teacher is not None:
                with torch.no_grad():
                    said, _ = self.forward(pairs, self.teacher.model)
            places = [[(f + a, f + b) for a, b in some] for f, some in zip(first, spans, strict=True)]
            yield loss_at(logits, places, self.each, self.teacher, said)

    @torch.inference_mode()
    def find(self, page: Page) -> Sequence[Sequence[Found]]:
        asked = [question.ids for question in page.questions]
        rooms = [self.room(ids) for ids in asked]
        chosen = [ChosenPassage(i, s, size) for i, size in enumerate(rooms) for s in self.starts(len(page.ids), size)]
        return self.windows.look(page.ids, asked, chosen, QaSettings().candidates)
