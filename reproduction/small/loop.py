"""A plain training loop for many small trainings side by side: every step is a function of its number.

`vcc finetune` is for one training with everything around it. Here, dozens share one device for a minute each; what they
learn, how batches are made and what they cost is the same code (`train/objectives.py`, `train/draws.py`).
"""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedModel, set_seed

from vcc.data.collate import IGNORED
from vcc.data.pretrain import Masked, collate_masked
from vcc.files import write_whole
from vcc.train.draws import Stream
from vcc.train.trainer import Batch, Objective

SAVE_SECONDS = 60.0
CURVE, STATE, LOG = "curve.json", "state.pt", 20


@dataclass(frozen=True)
class LoopPlan:
    """How long and how fast."""

    steps: int
    batch: int
    at_once: int
    rate: float
    seed: int
    device: str
    loaders: int
    warmup: float = 0.1  # share of the steps

    def factor(self, step: int) -> float:
        """Linear warm-up, then linear decay to 0."""
        warm = max(1, round(self.warmup * self.steps))
        return min((step + 1) / warm, (self.steps - step) / max(1, self.steps - warm))


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


def precision(device: str) -> Any:
    return torch.autocast("cuda", torch.bfloat16) if device == "cuda" else contextlib.nullcontext()


def batches(plan: LoopPlan, objective: Objective, data: Dataset[Any], first: int) -> Iterator[list[Batch]]:
    """From step `first` on, each step's batch in pieces that fit."""
    order = list(Stream(len(data), plan.steps * plan.batch, plan.seed))[first * plan.batch :]  # type: ignore[arg-type]
    loader = DataLoader(
        data, plan.at_once, sampler=order, collate_fn=objective.collate, num_workers=plan.loaders,  # type: ignore[arg-type]
        pin_memory=plan.device == "cuda",
    )  # fmt: skip
    pieces: list[Batch] = []
    for piece in loader:
        pieces.append({name: value.to(plan.device, non_blocking=True) for name, value in piece.items()})
        if len(pieces) == plan.batch // plan.at_once:
            yield pieces
            pieces = []


def learn(
    model: PreTrainedModel,
    objective: Objective,
    data: Dataset[Any],
    plan: LoopPlan,
    folder: Path,
    evaluate: Callable[[PreTrainedModel], dict[str, float]] | None = None,
    evaluate_every: int = 0,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train; the curve, also kept in `folder`. A run that was stopped goes on from where it last saved itself."""
    set_seed(plan.seed)
    model.to(plan.device)  # type: ignore[arg-type]
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=plan.rate, fused=plan.device == "cuda")
    folder.mkdir(parents=True, exist_ok=True)
    first, seconds, curve = 0, 0.0, []
    if (folder / STATE).exists():
        state = torch.load(folder / STATE, map_location=plan.device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, seconds, curve = state["step"], state["seconds"], state["curve"]
        say(f"goes on from step {first}")

    def save(step: int) -> None:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save({**state, "seconds": seconds, "curve": curve}, folder / "writing.pt")
        (folder / "writing.pt").replace(folder / STATE)

    model.train()
    saved = began = time.monotonic()
    total = torch.zeros((), device=plan.device)
    tokens = 0
    for step, pieces in enumerate(batches(plan, objective, data, first), first):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * plan.factor(step)
        number = torch.stack([objective.count(piece) for piece in pieces]).sum().clamp(min=1)
        for piece in pieces:
            with precision(plan.device):
                loss = objective.loss(model, piece) / number
            loss.backward()
            total += loss.detach()
            tokens += piece["input_ids"].numel()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        done = step + 1
        now = time.monotonic()
        if done % LOG == 0 or done == plan.steps:
            since = (done - 1) % LOG + 1 if done == plan.steps and done % LOG else LOG
            mean = float(total) / min(since, done - first)
            if not math.isfinite(mean):
                raise ArithmeticError(f"the loss is {mean} at step {done}: a smaller rate than {plan.rate:g} may help")
            point: dict[str, float] = {"step": done, "loss": mean, "seconds": seconds + now - began}
            if evaluate is not None and (done == plan.steps or (evaluate_every and done % evaluate_every == 0)):
                point |= evaluate(model)
                model.train()
            curve.append(point)
            say(", ".join(f"{name} {value:.4g}" for name, value in point.items()) + f", {tokens:,} tokens")
            total.zero_()
        if now - saved > SAVE_SECONDS and done < plan.steps:
            seconds, began = seconds + now - began, now
            save(done)
            saved = time.monotonic()
    found = {"curve": curve, "seconds": seconds + time.monotonic() - began, "steps": plan.steps}
    model.eval()
    return found


def finish(folder: Path, model: PreTrainedModel, tokenizer: Any, found: dict[str, Any]) -> None:
    """The trained model and, last, the curve, whose presence says that it is all there."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / STATE).unlink(missing_ok=True)
    write_whole(folder / CURVE, json.dumps(found, indent=1))
