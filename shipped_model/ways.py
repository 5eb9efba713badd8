"""Ways to read the same pages with the same model: through VCC, in windows, and through VCC with a second look.

Both have the same head, start and end logits per token, "no answer" being those of the CLS token, and the same loss,
-log P(one of the right starts) and ends. A way gives `losses` of a batch of pages, one optimizer step each, and the
best spans of a page for each of its questions.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from data import Ints, Page, Span
from torch import Tensor, nn
from torch.nn import functional as F

from vcc.core.cut import visited_nodes
from vcc.core.rows import Rows
from vcc.core.tree import SegmentTree, flatten_tree, project_tree
from vcc.data.answers import ScoredSpan, apart
from vcc.data.features import Frame
from vcc.data.framing import framed, framed_places
from vcc.documents.asker import NODES
from vcc.encode import Step, read_once, run_layers, run_windows
from vcc.hosts.long_input import find_encoder
from vcc.qa.second_look import Passage, batch, best_nodes, passages, room, window_logits

CLS, SEP = 101, 102  # of BERT's vocabulary
AROUND = Frame(np.array([CLS]), np.array([SEP]), np.array([SEP]), 1)
Pair = tuple[Ints, Ints]  # a question and a passage
LONGEST = 256  # tokens in an answer
LOOKS = 12  # passages that are read again, at most
BUDGETS = ((64, 32), (128, 32), (128, 32), (128, 64), (128, 64))  # drawn in training, so that any serves


@dataclass(frozen=True)
class Found(ScoredSpan):
    """A span; its score is its lead over `none`, the score of no answer where it was found."""

    none: float


class Way(Protocol):
    model: Any

    def losses(self, pages: Sequence[Page]) -> Iterator[Tensor]: ...

    def find(self, page: Page) -> list[list[Found]]: ...


def half(model: Any) -> torch.autocast:
    """bf16 on a GPU. Enter it anew for each step: it keeps its copies of the weights until it is left."""
    return torch.autocast(model.device.type, torch.bfloat16, enabled=model.device.type == "cuda")


def any_of(logits: Tensor, right: Tensor) -> Tensor:
    """-log P(one of the right places), (Q,)."""
    return logits.logsumexp(1) - logits.masked_fill(~right, -torch.inf).logsumexp(1)


def padded(rows: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Ids of different lengths -> (B, n) ids and how many are real (B,)."""
    ids = nn.utils.rnn.pad_sequence([torch.as_tensor(np.asarray(row, np.int64)) for row in rows], batch_first=True)
    return ids, torch.tensor([len(row) for row in rows])


def right_places(spans: Sequence[Sequence[Span]], n: int) -> Tensor:
    """(2, Q, 1 + n): right starts and ends; place 0, the CLS token, where there is no answer."""
    right = torch.zeros(2, len(spans), 1 + n, dtype=torch.bool)
    for i, some in enumerate(spans):
        right[0, i, [1 + a for a, _ in some] or [0]] = True
        right[1, i, [1 + b for _, b in some] or [0]] = True
    return right


def best_of(logits: Tensor, none: Tensor, top: int) -> list[list[Found]]:
    """The best end for each of the best starts, for each row of logits (Q, n, 2) and of none (Q,)."""
    n = logits.shape[1]
    size = min(LONGEST, n)
    ends = F.pad(logits[..., 1], (0, size - 1), value=-torch.inf)
    best, where = F.max_pool1d(ends[:, None], size, stride=1, return_indices=True)
    score, first = (logits[..., 0] + best[:, 0]).topk(min(top, n), dim=1)
    last = where[:, 0].gather(1, first)
    rows = zip(score.tolist(), first.tolist(), last.tolist(), none.tolist(), strict=True)
    return [[Found(a, b, s - null, null) for s, a, b in zip(*row, strict=True) if s > -1e8] for *row, null in rows]


# ------------------------------------------------------------------------------------------------------------------ vcc


@dataclass
class ReadByVcc:
    """Each page once, then all questions as one batch over the trees of their pages."""

    model: Any
    choosing: float = 0.5  # weight of the loss that teaches which segments to open
    asked_at_once: int = 2**33  # bytes of trees, when only reading
    opened: list[float] = field(default_factory=list)  # for each answer, whether the last layer opened its segment
    nodes: list[list[ScoredSpan]] = field(default_factory=list)  # of the last page, the best for each question

    def __post_init__(self) -> None:
        self.reader = find_encoder(self.model)
        self.host = self.reader.host
        self.device = self.model.device

    def rows(self, ids: Tensor, lengths: Tensor, token_type: int) -> Rows:
        ids, lengths = ids.to(self.device), lengths.to(self.device)
        places = torch.arange(ids.shape[1], device=self.device).expand_as(ids)
        real = places < lengths[:, None]
        inputs = {"input_ids": ids, "token_type_ids": torch.full_like(ids, token_type)}
        return Rows(self.host.embed(inputs, torch.where(real, places, -1)), real.float(), places.float())

    def read(self, pages: Sequence[Page]) -> SegmentTree:
        ids, lengths = padded([framed(page.ids, self.reader.vcc_settings.window, AROUND) for page in pages])
        return read_once(self.host, self.rows(ids, lengths, AROUND.second_type), self.reader.vcc_settings)

    def places(self, pages: Sequence[Page]) -> Tensor:
        """Where the tokens of the longest page stand among those that are read; the same for all of them."""
        n = max(len(page.ids) for page in pages)
        return torch.as_tensor(framed_places(n, self.reader.vcc_settings.window, AROUND), device=self.device)

    def logits(
        self,
        pages: Sequence[Page],
        tree: SegmentTree,
        asked: Sequence[Any],
        owner: Tensor,
        config: Any,
        steps: list[Step],
    ) -> Tensor:
        """(Q, 1 + n, 2), of no answer and of each token; question i is asked of page owner[i]."""
        ids, lengths = padded([[CLS, *question, SEP] for question in asked])
        vips = self.rows(ids, lengths, 0)
        (vips,) = run_windows(self.host, [vips], config, None, lambda parts: parts[0])
        owner = owner.to(self.device)
        own = of_owners(tree, owner)
        vips, after = run_layers(self.host, vips, own, config, steps.append, lambda vips, tree: vips)
        head = self.model.qa_outputs
        weight = head.weight.float().t()
        with torch.autocast(self.device.type, enabled=False):  # the tree is float32
            logits = flatten_tree(project_tree(after, weight)).hidden[:, self.places(pages)]
            lengths = torch.tensor([len(page.ids) for page in pages], device=self.device)[owner]
            beyond = torch.arange(logits.shape[1], device=self.device) >= lengths[:, None]
            logits = logits.masked_fill(beyond[..., None], -1e9)
            return torch.cat([vips.hidden[:, :1].float() @ weight, logits], 1) + head.bias.float()

    def losses(self, pages: Sequence[Page]) -> Iterator[Tensor]:
        config = replace(self.reader.vcc_settings, budget=random.choice(BUDGETS))
        owner = torch.tensor([i for i, page in enumerate(pages) for _ in page.questions])
        questions = [q for page in pages for q in page.questions]
        steps: list[Step] = []
        with half(self.model):
            tree = self.read(pages)
            logits = self.logits(pages, tree, [q.ids for q in questions], owner, config, steps)
        right = right_places([q.spans for q in questions], logits.shape[1] - 1).to(self.device)
        span = (any_of(logits[..., 0], right[0]) + any_of(logits[..., 1], right[1])).mean() / 2
        yield span + self.choosing * self.choosing_loss(pages, questions, tree, steps)

    def choosing_loss(
        self, pages: Sequence[Page], questions: Sequence[Any], tree: SegmentTree, steps: Sequence[Step]
    ) -> Tensor:
        """-log of each answer node's share of the score, beside that of all nodes without an answer."""
        gold = torch.zeros(len(questions), tree.counts[-1].shape[1], dtype=torch.bool)
        places = self.places(pages).tolist()
        for i, question in enumerate(questions):
            for a, b in question.spans:
                gold[i, places[a] : places[b] + 1] = True
        gold = gold.to(self.device)
        total, number = torch.zeros((), device=self.device), 0
        for step in steps:
            for depth, score in enumerate(step.cut.scores):  # type: ignore[union-attr]
                wanted = gold.unflatten(1, (-1, tree.scales[depth])).any(2)
                wanted = wanted.gather(1, visited_nodes(tree, step.cut, depth))  # type: ignore[arg-type]
                score = score.float() + 1e-9
                others = score.masked_fill(wanted, 0).sum(1, keepdim=True)
                total = total + (((score + others) / score).log() * wanted).sum() / wanted.sum().clamp(min=1)
                number += 1
        return total / max(number, 1)

    @torch.no_grad()
    def find(self, page: Page) -> list[list[Found]]:
        tree = self.read([page])
        some = max(1, self.asked_at_once // (tree.differences[-1].nbytes * 2))
        places = self.places([page]).cpu().numpy()
        found: list[list[Found]] = []
        self.nodes = []
        for first in range(0, len(page.questions), some):
            asked, steps = page.questions[first : first + some], []
            owner = torch.zeros(len(asked), dtype=torch.long)
            logits = self.logits([page], tree, [q.ids for q in asked], owner, self.reader.vcc_settings, steps)
            found += best_of(logits[:, 1:], logits[:, 0].sum(1), 60)
            cut = steps[-1].cut
            last = cut.opened_nodes[-1].cpu()  # type: ignore[union-attr]
            self.opened += [
                float((last[i] == int(places[a] // tree.scales[-2])).any())
                for i, q in enumerate(asked)
                for a, _ in q.spans
            ]
            self.nodes += best_nodes(cut, tree, places, NODES)  # type: ignore[arg-type]
        return found


def of_owners(tree: SegmentTree, owner: Tensor) -> SegmentTree:
    """For each question, the tree of its page."""

    def pick(values: Tensor) -> Tensor:
        return values.index_select(0, owner)  # whose gradient is a sum; that of indexing sorts

    return replace(
        tree,
        means=pick(tree.means),
        differences=tuple(map(pick, tree.differences)),
        counts=tuple(map(pick, tree.counts)),
        positions=tuple(map(pick, tree.positions)),
    )


# -------------------------------------------------------------------------------------------------------------- windows


@dataclass
class ReadByWindows:
    """Every question with every window of 512 tokens, 256 apart."""

    model: Any
    batch: int = 128  # windows in a step
    stride: int = 256
    size: int = 512

    def __post_init__(self) -> None:
        self.device = self.model.device

    def starts(self, n: int, room: int) -> list[int]:
        return list(range(0, max(n - room, 0) + self.stride, self.stride))

    def losses(self, pages: Sequence[Page]) -> Iterator[Tensor]:
        """All windows with an answer, and as many without, among them one with the paragraph that an unanswerable
        question is about."""
        chosen: list[tuple[Pair, list[Span]]] = []
        for page in pages:
            for i, q in enumerate(page.questions):
                size, first = room(q.ids, AROUND, self.size), len(q.ids) + 1
                inside = {
                    s: [(first + a - s, first + b - s) for a, b in q.spans if a >= s and b < s + size]
                    for s in self.starts(len(page.ids), size)
                }
                positive = [s for s in inside if inside[s]]
                negative = [s for s in inside if not inside[s]]
                some = positive + random.sample(negative, min(len(negative), max(2, len(positive))))
                about = [s for s in inside if q.near is not None and s <= q.near < s + size - 64]
                if not positive and about:
                    some[0] = random.choice(about)
                chosen += [(self.pair(page, Passage(i, s)), inside[s]) for s in some]
        random.shuffle(chosen)
        for at in range(0, len(chosen), self.batch):
            part = chosen[at : at + self.batch]
            with half(self.model):
                logits = window_logits(self.model, batch([pair for pair, _ in part], AROUND))
            right = right_places([spans for _, spans in part], logits.shape[1] - 1).to(self.device)
            yield (any_of(logits[..., 0], right[0]) + any_of(logits[..., 1], right[1])).mean() / 2

    def pair(self, page: Page, asked: Passage) -> Pair:
        question = page.questions[asked.question].ids
        return question, page.ids[asked.start : asked.start + room(question, AROUND, self.size)]

    @torch.no_grad()
    def find(self, page: Page) -> list[list[Found]]:
        return self.look(
            page,
            [
                Passage(i, s)
                for i, q in enumerate(page.questions)
                for s in self.starts(len(page.ids), room(q.ids, AROUND, self.size))
            ],
        )

    def look(self, page: Page, asked: Sequence[Passage]) -> list[list[Found]]:
        """The best spans of each question in its passages."""
        found: list[list[Found]] = [[] for _ in page.questions]
        for at in range(0, len(asked), 4 * self.batch):
            some = asked[at : at + 4 * self.batch]
            given = batch([self.pair(page, one) for one in some], AROUND)
            logits = window_logits(self.model, given)
            none = logits[:, 0].sum(1)
            logits[:, 0] = -torch.inf
            for one, first, spans in zip(some, given.first.tolist(), best_of(logits, none, 12), strict=True):
                by = one.start - first
                found[one.question] += [replace(span, first=span.first + by, last=span.last + by) for span in spans]
        return found


# ----------------------------------------------------------------------------------------------------------------- both


@dataclass
class ReadTwice(ReadByVcc):
    """VCC finds the place; the windows around it are read again, by the same model. It learns both at once."""

    looks: int = LOOKS
    windows: int = 96  # in a step
    more: int = 1  # steps with windows alone, for each with a compressed reading: they are quick

    def __post_init__(self) -> None:
        super().__post_init__()
        self.close = ReadByWindows(self.model, batch=self.windows)
        self.first: list[list[Found]] = []  # what the compressed reading of the last page found

    def losses(self, pages: Sequence[Page]) -> Iterator[Tensor]:
        (compressed,) = super().losses(pages)
        windows = self.close.losses(pages)
        yield compressed + next(windows)
        yield from itertools.islice(windows, self.more)

    @torch.no_grad()
    def find(self, page: Page) -> list[list[Found]]:
        self.first = [apart(some, 20) for some in super().find(page)]
        rooms = [room(q.ids, AROUND, self.close.size) for q in page.questions]
        return self.close.look(page, passages(self.first, self.nodes, rooms, len(page.ids), self.looks))
