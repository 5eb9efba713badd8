"""The jobs of appendix A.5 at small scale: a common decoder on short rows, then long rows, with the prefix read in
different ways.

python -m reproduction.small.prefix_jobs PACKED OUT SETTINGS JOB ARGUMENTS
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from reproduction.loop import LoopPlan, Trained
from reproduction.small.jobs import main, one_by_one, steps_in, text_of
from reproduction.small.layout import DECODER, OWN, SmallLayout
from reproduction.small.learning import finish, train
from reproduction.small.pack import MODEL
from reproduction.small.prefix import PrefixHost, prefix_reader, small_llama, suffix_states
from reproduction.small.settings import Small
from reproduction.small.timing import measure_losses
from vcc.config import VccConfig
from vcc.data.pretrain import Ints, Masked, PretrainDataset, collate_masked
from vcc.files import write_whole
from vcc.hosts import load
from vcc.train.draws import MaskedSequences
from vcc.train.objectives import token_loss
from vcc.train.perplexity import Perplexity
from vcc.train.trainer import Batch

HELD_OUT_ROWS = 64  # long sequences on which perplexity is measured
SPREAD = 7  # between the seeds of the common decoder and of the others


@dataclass(frozen=True)
class NothingHidden:
    """Text as it is: a decoder predicts the next token."""

    def raw_length(self, length: int) -> int:
        return length

    def hide_words(self, tokens: Ints, rng: np.random.Generator) -> Masked:
        ids = np.asarray(tokens, dtype=np.int64)
        return Masked(ids, np.zeros_like(ids), ids, in_place=True)


@dataclass(frozen=True)
class NextTokens:
    """Predict each token of the last `taught` from those before it, but for the first: it chooses what is opened.
    `reads`: tokens of a row that are read, from its end; `settings`: those before the suffix are in a tree."""

    reads: int
    taught: int
    settings: VccConfig | None = None

    def collate(self, items: Sequence[Masked]) -> Batch:
        return {"input_ids": collate_masked(items, 0)["input_ids"]}

    def count(self, batch: Batch) -> Tensor:
        return torch.tensor(len(batch["input_ids"]) * (self.taught - 1))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        ids = batch["input_ids"][:, -self.reads :]
        logits = model.lm_head(self.states(model, ids)[:, :-1])  # type: ignore[operator]
        return token_loss(logits, ids[:, 1 - self.taught :])

    def states(self, model: Any, ids: Tensor) -> Tensor:
        """The states (B, taught, D) of the tokens to predict from."""
        return self.reading(model)(ids)

    def reading(self, model: Any) -> Callable[[Tensor], Tensor]:
        if self.settings is None:
            return lambda ids: model.model(ids, use_cache=False).last_hidden_state[:, -self.taught :]
        host, taught, settings = PrefixHost.of(model), self.taught, self.settings
        return lambda ids: suffix_states(host, ids, taught, settings)


def objective_of(name: str, small: Small, tested: bool = False) -> NextTokens:
    """How a model learns; or how it is tested: all on the suffix."""
    chosen = prefix_reader(name)
    reads = small.suffix if chosen.reads == "suffix" else small.length
    return NextTokens(reads, small.length if chosen.taught == "all" and not tested else small.suffix, chosen.settings)


def settings_of(name: str, small: Small) -> Small:
    """The settings with as many sequences at once as fit."""
    return replace(small, at_once=gcd(small.batch, small.at_once, prefix_reader(name).fits))


def perplexity(layout: SmallLayout, objective: NextTokens) -> Perplexity:
    """Perplexity of the suffixes of held-out rows, the same for all."""
    small = layout.small
    data = PretrainDataset(text_of(layout, "validation"), NothingHidden(), small.length, 1, HELD_OUT_ROWS)
    dtype = torch.bfloat16 if small.device == "cuda" else torch.float32
    return Perplexity(data[: min(HELD_OUT_ROWS, data.per_epoch)], objective, min(small.at_once, 16), dtype)


def begin(layout: SmallLayout) -> None:
    """The common decoder: random weights, trained on rows as short as a suffix."""
    small, folder = layout.small, layout.start(DECODER)
    tokenizer = load.load_tokenizer(layout.packed / MODEL, local=True)
    torch.manual_seed(small.seed)
    width = load.load_config(layout.packed / MODEL, local=True).hidden_size  # as wide as the encoders
    model: Any = LlamaForCausalLM(small_llama(-(-len(tokenizer) // 64) * 64, width, small.length))
    measure = perplexity(layout, objective_of("short", small, tested=True))
    found = Trained(curve=[{"step": 0, **measure(model.to(small.device))}])
    if small.decoder_steps:
        rows = PretrainDataset(text_of(layout, "train"), NothingHidden(), small.suffix, small.seed + SPREAD, 2**40)
        plan = LoopPlan(small.prestart_rate, small.decoder_steps)
        every = max(20, small.decoder_steps // 100 * 20)
        objective = fast_objective(model, NextTokens(small.suffix, small.suffix), small)
        found = train(model, objective, MaskedSequences(rows), small, plan, folder, measure, every)
    finish(folder, model, tokenizer, found)


def go_on(layout: SmallLayout, name: str) -> None:
    """Train on long rows from the common decoder; perplexity of the suffix before and after."""
    layout = replace(layout, small=settings_of(name, layout.small))
    small, folder = layout.small, layout.pretrained(name)
    tokenizer = load.load_tokenizer(layout.start(DECODER), local=True)
    model = started(layout)
    objective = fast_objective(model, objective_of(name, small), small)
    measure = perplexity(layout, objective_of(name, small, tested=True))
    before = measure(model.to(small.device))
    data = PretrainDataset(text_of(layout, "train"), NothingHidden(), small.length, small.seed, 2**40)
    plan = LoopPlan(small.pretrain_rate, steps_in(layout, name, small.pretrain_seconds, small.pretrain_steps))
    every = max(20, (plan.steps or 0) // 100 * 20)
    found = train(model, objective, MaskedSequences(data), small, plan, folder, measure, every)
    finish(folder, model, tokenizer, replace(found, curve=[{"step": 0, **before}, *found.curve]))


def started(layout: SmallLayout) -> Any:
    return LlamaForCausalLM.from_pretrained(layout.start(DECODER), local_files_only=True)


@dataclass(frozen=True)
class CompiledTokens(NextTokens):
    """The same with a compiled pass over the layers."""

    run: Callable[[Tensor], Tensor] | None = None

    def states(self, model: Any, ids: Tensor) -> Tensor:
        assert self.run is not None
        return self.run(ids)


def fast_objective(model: Any, objective: NextTokens, small: Small) -> NextTokens:
    """With --compile, one graph for all layers: all batches have one shape."""
    if not small.compile:
        return objective
    whole = torch.compile(objective.reading(model), dynamic=False)
    return CompiledTokens(objective.reads, objective.taught, objective.settings, whole)


def time_alone(layout: SmallLayout, each: Sequence[dict[str, Any]]) -> None:
    """Milliseconds and memory per sequence, for one model after another: run it when nothing else runs."""
    one_by_one(each, lambda **one: time_one(layout, **one))


def warm(layout: SmallLayout, name: str) -> None:
    """Run the step that is timed once, so that its compiled code is on the disk."""
    time_one(layout, name, once=True)
    layout.compiled(name).touch()


def time_one(layout: SmallLayout, name: str, once: bool = False) -> None:
    """Time a model at its start."""
    small, place = settings_of(name, layout.small), torch.device(layout.small.device)
    model = started(layout)
    objective = fast_objective(model, objective_of(name, small), small)

    def given(batch: int) -> dict[str, Any]:
        drawn = torch.Generator().manual_seed(0)
        return {"input_ids": torch.randint(model.config.vocab_size, (batch, small.length), generator=drawn).to(place)}

    found = measure_losses(
        model, given, lambda batch: objective.loss(model, batch), place, [small.at_once], ("training",), once
    )
    file = layout.times(name, OWN)
    file.parent.mkdir(parents=True, exist_ok=True)
    if not once:
        write_whole(file, json.dumps({"model": name, "setting": OWN, "length": small.length, **found}, indent=1))


JOBS: dict[str, Callable[..., None]] = {"begin": begin, "go_on": go_on, "warm": warm, "time": time_alone}

if __name__ == "__main__":
    main(JOBS, *sys.argv[1:])
