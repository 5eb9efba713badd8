"""Perplexity on held-out documents."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vcc.data.pretrain import Masked
from vcc.train.processes import gathered, rank, world_size
from vcc.train.trainer import Objective


@dataclass(frozen=True)
class Perplexity:
    """Measured on the same sequences and masks every time, in every run."""

    sequences: Sequence[Masked]
    learning: Objective
    batch_size: int
    dtype: torch.dtype = torch.float32  # of the computation

    @torch.no_grad()
    def __call__(self, model: Any) -> dict[str, float]:
        """The mean loss per masked token (nats), and its exponential. Processes share the work and call the model
        equally often, as sharded models require."""
        was_training = model.training
        model.eval()
        step = self.batch_size * world_size()
        loss, hidden = 0.0, 0
        for start in range(0, len(self.sequences), step):
            mine = self.sequences[start + rank() * self.batch_size : start + (rank() + 1) * self.batch_size]
            batch = self.learning.collate(mine or self.sequences[:1])
            batch = {name: value.to(model.device) for name, value in batch.items()}
            with torch.autocast(model.device.type, self.dtype, enabled=self.dtype != torch.float32):
                found = self.learning.loss(model, batch)
            if mine:
                loss, hidden = loss + float(found), hidden + int(self.learning.count(batch))
        model.train(was_training)
        shares = gathered((loss, hidden))
        mean = sum(part for part, _ in shares) / max(sum(number for _, number in shares), 1)
        return {"log_perplexity": mean, "perplexity": math.exp(min(mean, 700))}
