"""Pretraining by replaced tokens: a small generator fills masked words in, and the reader says of every token whether
it is the author's (as ELECTRA learns).

    python -m shipped_model.replaced --prepared prepared --minutes 4 --out results/replaced
    python -m shipped_model.train --prepared prepared --way twice --model results/replaced ...

The generator is the reader's first layers with a head for masked words; both have the same embeddings. The text is all
that the reader is trained on later, and books.
"""

import copy
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, BertForMaskedLM

import vcc
from reproduction import loop
from reproduction.loop import LoopPlan, half_precision
from shipped_model.data import TokenSets, load
from vcc.commands.options import call

SIZE = 512  # tokens in a row
MASKED = 0.15
LAYERS = 2  # of the generator
WEIGHT = 50.0  # of the reader's loss beside the generator's


@dataclass(frozen=True)
class ReplacedOptions:
    """Settings of the pretraining."""

    prepared: Annotated[Path, "output folder of `prepare`"]
    model: Annotated[Path | None, "reader to start from (default: the prepared one)"] = None
    minutes: Annotated[float, "minutes of training"] = 4.0
    rate: Annotated[float, "learning rate"] = 2e-4
    rows: Annotated[int, "rows of 512 tokens per step"] = 128
    steps: Annotated[int | None, "maximum steps, within --minutes"] = None
    out: Annotated[Path, "output folder"] = Path("out/replaced")


def pretrain(options: ReplacedOptions) -> None:
    """Train a reader to tell replaced tokens, and save it."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(options.prepared)
    start = options.model or options.prepared
    reader = vcc.unwrap(AutoModelForQuestionAnswering.from_pretrained(start, dtype=torch.float32))
    both = WithGenerator(reader, tokenizer.mask_token_id).to(device)
    text = torch.from_numpy(running_text(load(options.prepared / "tokens.npz.xz"))).to(device)
    work = RunningText(both, text, options.rows)
    optimizer = torch.optim.AdamW(both.parameters(), lr=options.rate, weight_decay=0.01, fused=device == "cuda")
    plan = LoopPlan(options.rate, options.steps, 60 * options.minutes, warmup=0.05, log_every=100)
    loop.learn(both, optimizer, work, plan)
    reader.half().save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)


def running_text(data: TokenSets) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The texts of all training sets, one after the other, and books."""
    units = [unit.ids for name in sorted(data.units) if name.endswith("_train") for unit in data.units[name]]
    return np.concatenate([data.books["train"], *units]).astype(np.int32)


class WithGenerator(nn.Module):
    """A reader, the generator that deceives it, and the head that tells which tokens are the author's."""

    def __init__(self, reader: Any, mask_id: int) -> None:
        super().__init__()
        base = reader.base_model
        config = copy.deepcopy(base.config)
        config.num_hidden_layers = min(LAYERS, len(base.encoder.layer))
        self.reader, self.mask_id = reader, mask_id
        self.generator: Any = BertForMaskedLM(config)
        self.generator.bert.encoder.layer = copy.deepcopy(base.encoder.layer[: config.num_hidden_layers])
        self.generator.bert.embeddings = base.embeddings
        self.generator.cls.predictions.decoder.weight = base.embeddings.word_embeddings.weight
        self.tells = nn.Linear(config.hidden_size, 1)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The losses of the generator and of the reader, on rows (B, n)."""
        hidden = torch.rand(ids.shape, device=ids.device) < MASKED
        with half_precision(ids.device):
            states = self.generator.bert(input_ids=ids.masked_fill(hidden, self.mask_id)).last_hidden_state[hidden]
            words = self.generator.cls(states).float()
            filled = replaced(ids, hidden, words)
            said = self.tells(self.reader.base_model(input_ids=filled).last_hidden_state)[..., 0].float()
        wrong = (filled != ids).to(said.dtype)
        return F.cross_entropy(words, ids[hidden].long()), F.binary_cross_entropy_with_logits(said, wrong)


@torch.no_grad()
def replaced(ids: Tensor, hidden: Tensor, words: Tensor) -> Tensor:
    """The rows (B, n) with words drawn by the scores (m, vocabulary) at the m hidden places."""
    drawn = (words - torch.empty_like(words).exponential_().log()).argmax(1)
    return ids.masked_scatter(hidden, drawn.to(ids.dtype))


@dataclass
class RunningText(loop.Work):
    """Rows from anywhere in the text."""

    model: WithGenerator
    text: Tensor
    rows: int
    counts: dict[str, int] = field(default_factory=dict)

    def steps(self, first: int, state: None) -> Iterator[loop.Losses]:
        size = min(SIZE, self.model.reader.config.max_position_embeddings, len(self.text))
        place = torch.arange(size, device=self.text.device)
        while True:
            starts = torch.randint(len(self.text) - size + 1, (self.rows, 1), device=self.text.device)
            guessed, told = self.model(self.text[starts + place])
            yield (guessed + WEIGHT * told,)


if __name__ == "__main__":
    call(pretrain, sys.argv[1:], "python -m shipped_model.replaced")
