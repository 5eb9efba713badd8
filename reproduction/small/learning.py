"""The training of the small scale as work of the loop: batches of an objective, the same for every model.

Tasks, batches and losses are those of `vcc finetune` (`train/objectives.py`,
`train/draws.py`); every step is a function of its number.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedModel, set_seed

from reproduction.loop import BETWEEN, LoopPlan, Losses, Trained, Work, half_precision, learn
from reproduction.small.closing import ClosingBudget
from reproduction.small.layout import CURVE
from reproduction.small.pieces import collate_types
from reproduction.small.settings import Small
from vcc.data.collate import IGNORED
from vcc.data.pretrain import Masked, collate_masked
from vcc.files import one_at_a_time, write_whole
from vcc.hosts.forward.wrapped import state_of
from vcc.train.draws import Stream
from vcc.train.trainer import Batch, Objective

ENDLESS = 2**62  # draws
SMALLEST = 1e-3  # size of a weight, for its learning rate
LOCK = ".training.lock"
AHEAD = 4  # batches that each loader prepares before they are needed


@dataclass(frozen=True)
class MaskedWords:
    """Masked words, the head running on these alone. `row`: sequences are cut into rows of that many tokens."""

    pad_id: int
    vips: str | None
    row: int | None = None

    def collate(self, items: Sequence[Masked]) -> Batch:
        batch = collate_masked(items, self.pad_id)
        mask = batch.pop("vip_mask")
        if self.vips is not None:
            batch[self.vips] = mask
        batch |= collate_types(items, mask.shape[1])
        if self.row is not None and batch["input_ids"].shape[1] > self.row:
            n = batch["input_ids"].shape[1] // self.row * self.row
            batch = {name: value[:, :n].reshape(-1, self.row) for name, value in batch.items()}
        return batch

    def count(self, batch: Batch) -> Tensor:
        return (batch["labels"] != IGNORED).sum()

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        given = {name: value for name, value in batch.items() if name != "labels"}
        hidden = model.base_model(**given).last_hidden_state  # type: ignore[operator]
        hidden_ones = batch["labels"] != IGNORED
        head: Any = model.cls if hasattr(model, "cls") else model.lm_head
        logits = head(hidden[hidden_ones])
        return nn.functional.cross_entropy(logits.float(), batch["labels"][hidden_ones], reduction="sum")


@dataclass
class BatchWork(Work):
    """Batches of a data set; each is split into pieces that fit on the device."""

    model: nn.Module
    objective: Objective
    data: Dataset[Any]
    batch: int
    at_once: int
    seed: int
    device: str
    loaders: int  # processes
    closing: ClosingBudget | None = None
    counts: dict[str, int] = field(default_factory=lambda: {"tokens": 0})

    def steps(self, first: int, state: None) -> Iterator[Losses]:
        draws = Stream(len(self.data), ENDLESS, self.seed)  # type: ignore[arg-type]
        loader = DataLoader(
            self.data, self.at_once, sampler=Later(draws, first * self.batch), collate_fn=self.objective.collate,  # type: ignore[arg-type]
            num_workers=self.loaders, prefetch_factor=AHEAD if self.loaders else None,
            pin_memory=self.device == "cuda",
        )  # fmt: skip
        return self.batches(iter(loader))

    def batches(self, loader: Iterator[Batch]) -> Iterator[Losses]:
        while True:
            pieces = [
                {name: value.to(self.device, non_blocking=True) for name, value in piece.items()}
                for piece in islice(loader, self.batch // self.at_once)
            ]
            self.counts["tokens"] += sum(piece["input_ids"].numel() for piece in pieces)
            if self.closing is not None:
                state_of(self.model).settings = self.closing.at(self.progress)
            yield self.losses(pieces)
            yield BETWEEN

    def losses(self, pieces: Sequence[Batch]) -> Iterator[Tensor]:
        number = torch.stack([self.objective.count(piece) for piece in pieces]).sum().clamp(min=1)
        for piece in pieces:
            with half_precision(self.device):
                loss = self.objective.loss(self.model, piece) / number
            yield loss


@dataclass(frozen=True)
class Later:
    """Draws from number `first` on."""

    draws: Stream
    first: int

    def __iter__(self) -> Iterator[int]:
        return islice(iter(self.draws), self.first, None)


def train(
    model: PreTrainedModel,
    objective: Objective,
    data: Dataset[Any],
    small: Small,
    plan: LoopPlan,
    folder: Path,
    evaluate: Callable[[PreTrainedModel], dict[str, float]] | None = None,
    evaluate_every: int = 0,
    say: Callable[[str], None] = print,
    closing: ClosingBudget | None = None,
    by_size: bool = False,
) -> Trained:
    """Train with AdamW; a stopped run resumes from its last checkpoint in `folder`. `by_size`: the rate of each weight
    is relative to its size."""
    set_seed(small.seed)
    model.to(small.device)  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(groups_of(model, by_size), lr=plan.rate, fused=small.device == "cuda")
    work = BatchWork(
        model, objective, data, small.batch, small.at_once, small.seed, small.device, small.loaders, closing
    )
    folder.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(folder / LOCK):  # one whose plan was killed saves and ends within seconds
        found = learn(model, optimizer, work, plan, folder, evaluate, evaluate_every, say)
    if closing is not None:
        state_of(model).settings = closing.settings
    return found


def groups_of(model: nn.Module, by_size: bool = False) -> list[dict[str, Any]]:
    """Matrices decay, vectors do not. T5's weights begin with very different sizes (embeddings at 1, queries at 0.006)
    and its authors' optimizer scales each update by the size; `by_size` does so in powers of two, by the first size."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        size = float(parameter.detach().float().pow(2).mean().sqrt())
        times = 2.0 ** round(math.log2(max(size, SMALLEST))) if by_size else 1.0
        groups.setdefault((times, 0.01 if parameter.ndim > 1 else 0.0), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "times": times} for (times, decay), parameters in groups.items()
    ]


def finish(folder: Path, model: PreTrainedModel, tokenizer: Any, found: Trained) -> None:
    """Write the trained model and, last, the curve, whose presence marks completion."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    curve = asdict(found)
    write_whole(folder / CURVE, json.dumps({name: curve[name] for name in ("curve", "seconds", "steps")}, indent=1))
