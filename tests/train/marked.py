"""A training small enough to be killed fifty times: three layers of width 16, wrapped, learn to find a marked token.

torchrun --nproc-per-node 2 tests/train/marked.py OUT '{"fsdp": true}'
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForQuestionAnswering, PreTrainedModel, set_seed

import vcc
from vcc.train.record import RunRecord
from vcc.train.run import Training, fit, settle

LENGTH, VOCABULARY = 24, 50


class Marked(torch.utils.data.Dataset):
    """Item d: random tokens, one of them replaced by 1; all of it a function of the draw d."""

    def __len__(self) -> int:
        return 37  # not a multiple of any batch size: epochs end in the middle of batches

    def __getitem__(self, draw: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(draw)
        ids = torch.randint(2, VOCABULARY, (LENGTH,), generator=generator)
        place = torch.randint(LENGTH, (), generator=generator)
        return {
            "input_ids": ids.index_fill(0, place, 1),
            "attention_mask": torch.ones(LENGTH, dtype=torch.long),
            "place": place,
        }


class Find:
    """Items weigh 1 to 3, as texts of different lengths do: no two pieces of a batch weigh the same."""

    def collate(self, items: Any) -> dict[str, Tensor]:
        return {name: torch.stack([item[name] for item in items]) for name in items[0]}

    def count(self, batch: dict[str, Tensor]) -> Tensor:
        return (1 + batch["place"] % 3).sum()

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        ids = batch["input_ids"]
        vips = torch.zeros_like(ids).index_fill(1, torch.tensor([0, 1]), 1)
        logits = model(input_ids=ids, attention_mask=batch["attention_mask"], vip_mask=vips).start_logits
        return (cross_entropy(logits, batch["place"], reduction="none") * (1 + batch["place"] % 3)).sum()


class Suggested:
    learning_rate, batch_size, epoch_count, warmup_steps, weight_decay = 3e-3, 4, 1, 2, 0.01
    precision = "bf16"


def model(seed: int = 0, dropout: float = 0.1) -> PreTrainedModel:
    """Dropout and exploration both draw random numbers in every step; without dropout there is neither."""
    set_seed(seed)
    plain = BertForQuestionAnswering(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=LENGTH,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )
    )
    explore = 0.5 if dropout else 0.0
    return vcc.wrap(plain, vcc.VccConfig((4, 1), (2,), window=8, window_layers=1, explore=explore, dense_below=0))


@dataclass(frozen=True, kw_only=True)
class MarkedRecord(RunRecord):
    task: str = "marked"
    dropout: float


def train(out: Path, dropout: float = 0.1, network: PreTrainedModel | None = None, **options: Any) -> Path:
    """A few seconds of training; the last checkpoint."""
    training = Training(out=out, **{"steps": 12, "save_every": 3, "log_every": 2, "device": "cpu", **options})
    data = Marked()
    settled = settle(training, Suggested(), len(data))
    network = network or model(training.seed, dropout)
    record = MarkedRecord(
        recipe="marked", model="marked", fresh=True, vcc=None, length=LENGTH, data="37", source=None, dropout=dropout
    )
    return fit(settled, record, network, Find(), data, None, LENGTH)


if __name__ == "__main__":
    options = {"dropout": 0.0, **json.loads(sys.argv[2])}
    network = model(dropout=options["dropout"])
    train(Path(sys.argv[1]), network=network, **options)
    print("parameters are", {type(parameter).__name__ for parameter in network.parameters()})
