"""Learn to find the right document: a question should be nearer to the nodes of its own passage than to others.

The vectors are the tree's means of 128 and 16 tokens after the window layers, so an index for questions also serves for
search, without extra computation.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils.data import IterableDataset

from reproduction.loop import half_precision
from shipped_model.data import LOADERS, Ints, TokenQuestion, Unit
from shipped_model.practice import batches
from vcc.core.score import SHARPNESS
from vcc.core.tree import SegmentTree, siblings
from vcc.qa.model import QaModel

PAIRS = 320  # in a step: each passage is a negative for all other questions
LONGEST = 382  # tokens of a passage: three nodes of 128 with CLS and SEP
# Sets whose questions name what they are about. "Which law governs this agreement?" fits every contract.
SETS = (
    "squad11_train",
    "squad2_train",
    "squadshifts_train",
    "nq_train",
    "afriqa_train",
    "qasper_para_train",
    "qamr_train",
    "timeqa_train",
    "medquad_train",
    "fairytaleqa_train",
    "hotpot_train",
    "musique_train",
)


class Pairs(NamedTuple):
    """Questions, the passage that answers each, and the document that each passage is from."""

    questions: list[Ints]
    passages: list[Ints]
    owners: Tensor  # (N,)


@dataclass
class PairStream(IterableDataset[Pairs]):
    """Endless batches of questions and distinct passages."""

    units: Mapping[str, Sequence[Unit]]
    pairs: int = PAIRS
    seed: int = 0
    asked: list[tuple[int, Unit, TokenQuestion]] = field(init=False)

    def __post_init__(self) -> None:
        self.asked = [
            (
                1000 * number + unit.owner
                if name != "squad2_train"
                else 1000 * SETS.index("squad11_train") + unit.owner,
                unit,
                q,
            )
            for number, name in enumerate(SETS)
            for unit in self.units.get(name, ())
            for q in unit.questions
            if q.spans
        ]

    def __iter__(self) -> Iterator[Pairs]:
        worker = torch.utils.data.get_worker_info()
        chance = random.Random(self.seed + (worker.id if worker else 0))
        while True:
            chosen = {
                id(unit): (owner, unit, q) for owner, unit, q in chance.choices(self.asked, k=self.pairs)
            }.values()
            yield Pairs(
                [q.ids for _, _, q in chosen],
                [around(unit, q, chance) for _, unit, q in chosen],
                torch.tensor([owner for owner, _, _ in chosen]),
            )


def around(unit: Unit, question: TokenQuestion, chance: random.Random) -> Ints:
    """A stretch of the text that contains an answer."""
    a, b = chance.choice(question.spans)
    low, high = max(b + 1 - LONGEST, 0), min(a, max(len(unit.ids) - LONGEST, 0))
    start = chance.randint(min(low, high), high)
    return unit.ids[start : start + LONGEST]


def stream(units: Mapping[str, Sequence[Unit]], workers: int, seed: int = 0) -> Iterator[Pairs]:
    return batches(PairStream(units, seed=seed * LOADERS), workers)


def finding_loss(qa: QaModel, pairs: Pairs) -> Tensor:
    """-log P(the question's own document) among all of the batch, by the best node of each, at both coarse scales."""
    with half_precision(qa.device):
        tree = qa.read(pairs.passages)
        questions = qa.question_vectors(pairs.questions)  # (N, D)
    owners = pairs.owners.to(questions.device)
    same = owners[:, None] == owners[None, :]
    same.fill_diagonal_(False)  # another passage of the same document is neither right nor wrong
    right = torch.arange(len(owners), device=owners.device)
    total = questions.new_zeros(())
    for nodes, counts in scales_of(tree):
        cosine = torch.einsum("qd,nmd->qnm", questions, normalize(nodes.float(), dim=2))
        best = cosine.masked_fill((counts == 0)[None], -1.0).amax(2)
        logits = (SHARPNESS * best).masked_fill(same, -torch.inf)
        total = total + torch.nn.functional.cross_entropy(logits, right)
    return total / 2


def scales_of(tree: SegmentTree) -> Iterator[tuple[Tensor, Tensor]]:
    """The nodes (N, m, D) of the two coarsest scales, and their counts (N, m)."""
    yield tree.means, tree.counts[0]
    finer = (tree.means[:, :, None] - siblings(tree.differences[0], tree.fan_outs[0])).flatten(1, 2)
    yield finer, tree.counts[1]


@torch.no_grad()
def recall(qa: QaModel, units: Sequence[Unit]) -> float:
    """How often, in percent, a question's own text is the nearest of all, by its best node of 128 or 16 tokens."""
    nodes: list[list[Tensor]] = [[], []]
    owners: list[list[int]] = [[], []]
    asked: list[tuple[int, Ints]] = [(i, q.ids) for i, unit in enumerate(units) for q in unit.questions if q.spans]
    for i, unit in enumerate(units):
        for which, (some, counts) in enumerate(scales_of(qa.read([unit.ids]))):
            nodes[which] += normalize(some[0][counts[0] > 0].float(), dim=1).split(1)
            owners[which] += [i] * int((counts[0] > 0).sum())
    found = 0
    tables = [(torch.cat(some), torch.tensor(of, device=qa.device)) for some, of in zip(nodes, owners, strict=True)]
    for first in range(0, len(asked), 256):
        batch = asked[first : first + 256]
        questions = qa.question_vectors([ids for _, ids in batch])
        scores = torch.zeros(len(batch), len(units), device=qa.device)
        for vectors, of in tables:
            best = torch.full_like(scores, -1.0)
            scores += best.index_reduce_(1, of, questions @ vectors.T, "amax")
        found += sum(int(best == own) for best, (own, _) in zip(scores.argmax(1).tolist(), batch, strict=True))
    return 100 * found / max(len(asked), 1)
