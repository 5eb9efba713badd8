"""The jobs of the encoder-decoders at small scale: a common T5 trained by span corruption, then summaries.

python -m reproduction.small.write_jobs PACKED OUT SETTINGS JOB ARGUMENTS
"""

import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional as F
from transformers import AutoModelForSeq2SeqLM

from reproduction.loop import LoopPlan, Trained, half_precision
from reproduction.small import timing, writers
from reproduction.small.jobs import main, one_by_one, steps_in, text_of
from reproduction.small.layout import CURVE, OWN, T5, T5_TOKENS, SmallLayout
from reproduction.small.learning import finish, train
from reproduction.small.pack import DATA, WEIGHTS, summaries
from reproduction.small.summaries import SummaryRows, SummaryTokens
from vcc.data.collate import IGNORED
from vcc.data.example import Example
from vcc.data.features import ExampleTokenizer, Features
from vcc.data.pretrain import PretrainDataset, SpanCorruption
from vcc.files import write_whole
from vcc.hosts import load
from vcc.tasks import TASKS
from vcc.train.draws import MaskedSequences
from vcc.train.objectives import Answering, Filling
from vcc.train.perplexity import Perplexity
from vcc.train.predict import Predictor
from vcc.train.trainer import Batch

HELD_OUT_ROWS = 512  # short rows on which perplexity is measured
MOST_ANSWERED = 32  # sequences per batch when summaries are written


# ------------------------------------------------------------------------------------------------------- the common T5


def begin(layout: SmallLayout) -> None:
    """Span corruption on short rows, from random weights unless some were packed."""
    small, folder, packed = layout.small, layout.start(T5), layout.packed / T5
    small = replace(small, batch=small.t5_batch, at_once=small.t5_batch)
    tokenizer = load.load_tokenizer(packed, local=True)
    torch.manual_seed(small.seed)
    model: Any
    if any(packed.glob(WEIGHTS)):
        model, _ = load.load_model(packed, AutoModelForSeq2SeqLM, local=True)
    else:
        model = load.new_model(packed, AutoModelForSeq2SeqLM, local=True)
    load.check_vocabulary(model, tokenizer)
    objective = Filling(True, tokenizer.pad_token_id, None)
    hiding = SpanCorruption.of(tokenizer)
    held_out = PretrainDataset(
        text_of(layout, "validation", T5_TOKENS), hiding, small.short, seed=1, size=HELD_OUT_ROWS
    )
    number = min(HELD_OUT_ROWS, held_out.per_epoch)
    dtype = torch.bfloat16 if small.device == "cuda" else torch.float32
    perplexity = Perplexity(held_out[:number], objective, min(small.at_once, 64), dtype)

    def measure(model: Any) -> dict[str, float]:
        with torch.compiler.set_stance("force_eager"):  # not worth another graph
            return perplexity(model)

    if small.compile:
        model.get_encoder().compile(dynamic=False)
        model.get_decoder().compile(dynamic=False)
    found = Trained()
    before = measure(model.to(small.device))
    if small.t5_steps or small.t5_seconds:
        data = PretrainDataset(text_of(layout, "train", T5_TOKENS), hiding, small.short, small.seed + 7, 2**40)
        steps = small.t5_steps if small.t5_seconds is None else None
        plan = LoopPlan(small.t5_rate, steps, small.t5_seconds)
        every = 20 * max(1, (small.t5_steps or 2000) // 100)
        found = train(model, objective, MaskedSequences(data), small, plan, folder, measure, every, by_size=True)
    finish(folder, model, tokenizer, replace(found, curve=[{"step": 0, **before}, *found.curve]))


# ----------------------------------------------------------------------------------------------------------- summaries


@dataclass(frozen=True)
class FixedLabels(Answering):
    """Answers in text, padded to one number of tokens, for a compiled decoder."""

    written: int = 1

    def collate(self, items: Sequence[Features]) -> Batch:
        batch = super().collate(items)
        missing = self.written - batch["labels"].shape[1]
        return {**batch, "labels": F.pad(batch["labels"], (0, missing), value=IGNORED)}


def writing(layout: SmallLayout, name: str, model: Any, tokenizer: Any, length: int) -> Answering:
    """The objective of a task. Compiled models get batches of one shape."""
    made = Answering.of(model, tokenizer, "text", length)
    if not layout.small.compile:
        return made
    return FixedLabels("text", replace(made.collator, multiple=length), made.vips, written=layout.small.written)


def examples(layout: SmallLayout, task: str) -> Sequence[Example]:
    """A random sample of the validation examples, the same for every seed."""
    found = TASKS[task]().load("validation", str(layout.packed / DATA))
    order = random.Random(0).sample(range(len(found)), len(found))[: layout.small.examples]
    return [found[i] for i in sorted(order)]


def tune(layout: SmallLayout, name: str, task: str) -> None:
    """Learn a task from the common T5, then write the summaries of its validation questions."""
    chosen, folder = writers.writer(name), layout.tuned(name, task)
    layout = replace(layout, small=chosen.settings(layout.small))
    small, length = layout.small, chosen.reads(layout.small)
    tokenizer = load.load_tokenizer(layout.start(T5), local=True)
    if not (folder / CURVE).exists():
        tokens = SummaryTokens.load(summaries(layout.packed, task))
        torch.manual_seed(small.seed)
        model = writers.started(name, layout.start(T5))
        objective = writing(layout, name, model, tokenizer, length)
        writers.with_dropout(model, writers.DROPOUT)
        if small.compile:
            writers.make_fast(name, model, tokens.most_vips())
        data = SummaryRows(tokens, tokenizer.eos_token_id, length, small.written)
        plan = LoopPlan(small.write_rate, steps_in(layout, name, small.tune_seconds, small.tune_steps))
        found = train(model, objective, data, small, plan, folder, by_size=True)
        finish(folder, model, tokenizer, found)
    score(layout, name, task, length)


def score(layout: SmallLayout, name: str, task: str, length: int) -> None:
    """Write the summaries greedily, and score them; beside Rouge, the log perplexity of the references, which tells
    weak models apart better."""
    small = layout.small
    tokenizer = load.load_tokenizer(layout.tuned(name, task), local=True)
    model = writers.tuned(layout.tuned(name, task)).eval().to(small.device)
    held_out = examples(layout, task)
    batch = min(2 * small.at_once, MOST_ANSWERED)
    predictor = Predictor.of(TASKS[task](), "text", model, tokenizer, length, batch)
    predictor = replace(predictor, tokenize=ExampleTokenizer(tokenizer, "text", length, small.written))
    with half_precision(small.device):
        predictions, report, _ = predictor.answer_all(held_out)
    metrics = predictor.task.metrics(predictions, held_out)
    found = {
        "model": name, "task": task, "length": length, "examples": len(held_out), "cut_examples": report.cut_examples,
        "cut_targets": report.cut_targets, "log_perplexity": surprise(predictor, held_out, small.device),
        "metrics": metrics, "texts": [prediction.text for prediction in predictions],
    }  # fmt: skip
    file = layout.scores(name, task)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(found, indent=1))


@torch.no_grad()
def surprise(predictor: Predictor, held_out: Sequence[Example], device: str) -> float:
    """The mean loss per token of the first references, in nats."""
    total, number = 0.0, 0
    for start in range(0, len(held_out), predictor.batch_size):
        some = [predictor.tokenize(example) for example in held_out[start : start + predictor.batch_size]]
        batch = {name: value.to(device) for name, value in predictor.answering.collate(some).items()}
        with half_precision(device):
            total += float(predictor.answering.loss(predictor.model, batch))
        number += int(predictor.answering.count(batch))
    return total / max(number, 1)


def time_alone(layout: SmallLayout, each: Sequence[dict[str, Any]]) -> None:
    """Milliseconds and memory per sequence, for one model after another: run it when nothing else runs."""
    one_by_one(each, lambda **one: time_one(layout, **one))


def warm(layout: SmallLayout, name: str) -> None:
    """Run the steps that are timed once, so that their compiled code is on the disk."""
    time_one(layout, name, once=True)
    layout.compiled(name).touch()


def time_one(layout: SmallLayout, name: str, once: bool = False) -> None:
    """Time a model at its start, reading all it can and writing as much as in training."""
    chosen = writers.writer(name)
    small, length = chosen.settings(layout.small), chosen.reads(layout.small)
    model = writers.started(name, layout.start(T5))
    if small.compile:
        writers.make_fast(name, model, timing.QUESTION)
    modes = ("training", "forward") if small.time_forward else ("training",)
    found = timing.measure(
        model, writers.vip_name(name), length, small.device, small.at_once, small.compile, modes, small.written,
        once=once,
    )  # fmt: skip
    file = layout.times(name, OWN)
    file.parent.mkdir(parents=True, exist_ok=True)
    if not once:
        write_whole(file, json.dumps({"model": name, "setting": OWN, "length": length, **found}, indent=1))


JOBS: dict[str, Callable[..., None]] = {"begin": begin, "tune": tune, "warm": warm, "time": time_alone}

if __name__ == "__main__":
    main(JOBS, *sys.argv[1:])
