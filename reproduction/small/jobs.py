"""The jobs of the small scale: each writes one file when it is done, and needs files of earlier ones.

python -m reproduction.small.jobs PACKED OUT SETTINGS JOB ARGUMENTS
"""

import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForMaskedLM

from reproduction.loop import LoopPlan, Trained, half_precision
from reproduction.small import timing, variants
from reproduction.small.layout import CURVE, SmallLayout
from reproduction.small.learning import MaskedWords, finish, train
from reproduction.small.pack import DATA, MODEL, TEXTS
from reproduction.small.settings import Small
from vcc.data.corpus import prepare
from vcc.data.example import Example
from vcc.data.features import ExampleTokenizer
from vcc.data.pretrain import MaskedLM, PretrainDataset
from vcc.files import write_whole
from vcc.hosts import load
from vcc.hosts.quiet import quiet
from vcc.tasks import TASKS
from vcc.tasks.task import Split, Task
from vcc.train.draws import MaskedSequences, TaskExamples
from vcc.train.objectives import Answering
from vcc.train.perplexity import Perplexity
from vcc.train.predict import Predictor, counting

HELD_OUT_ROWS = 64  # long sequences on which perplexity is measured
PARAGRAPHS = 64  # short ones per step
CHARACTERS = 4  # of a token of a contract; a few tokens have more
MOSTLY_EMPTY = ("cuad",)  # most clauses are in few contracts; like its authors, we draw both kinds equally often


# ------------------------------------------------------------------------------------------------------- pretraining


def sequences(layout: SmallLayout, split: str, tokenizer: Any, length: int, seed: int, size: int) -> PretrainDataset:
    store = prepare(str(layout.packed / TEXTS / split), tokenizer, layout.tokens(split))
    return PretrainDataset(store, MaskedLM.of(tokenizer), length, seed, size)


def perplexity(layout: SmallLayout, tokenizer: Any, objective: MaskedWords) -> Perplexity:
    """Perplexity of held-out masked words, on the same sequences and masks for all models."""
    small = layout.small
    data = sequences(layout, "validation", tokenizer, small.length, seed=1, size=HELD_OUT_ROWS)
    number = min(HELD_OUT_ROWS, data.per_epoch)
    dtype = torch.bfloat16 if small.device == "cuda" else torch.float32
    return Perplexity(data[:number], objective, small.at_once, dtype)


def begin(layout: SmallLayout) -> None:
    """The common checkpoint: the packed weights with a head for masked words, trained on short rows."""
    small, folder = layout.small, layout.start()
    tokenizer = load.load_tokenizer(layout.packed / MODEL, local=True)
    torch.manual_seed(small.seed)
    model: Any
    model, _ = load.load_model(layout.packed / MODEL, AutoModelForMaskedLM, local=True, new_head=True)
    objective = MaskedWords(tokenizer.pad_token_id, None, row=small.short)
    measure = perplexity(layout, tokenizer, objective)
    data = sequences(layout, "train", tokenizer, small.length, small.seed + 7, 2**40)  # tokenized here for all jobs
    if small.start_steps:
        plan = LoopPlan(small.pretrain_rate, small.start_steps)
        found = train(model, objective, MaskedSequences(data), small, plan, folder, measure)
    else:
        found = Trained(curve=[{"step": 0, **measure(model.to(small.device))}])
    finish(folder, model, tokenizer, found)


def pretrain(layout: SmallLayout, name: str) -> None:
    small, folder = layout.small, layout.pretrained(name)
    tokenizer = load.load_tokenizer(layout.start(), local=True)
    model: Any = variants.made(name, layout.start(), small.length)
    kind = variants.variant(name).kind
    vips = "vip_mask" if kind == "vcc" else None  # Longformer's authors pretrain it without global tokens
    objective = MaskedWords(tokenizer.pad_token_id, vips, small.short if kind == "dense-512" else None)
    measure = perplexity(layout, tokenizer, objective)
    before = measure(model.to(small.device))
    steps = variants.variant(name).pretrain_steps(small.pretrain_steps)
    found = Trained()
    if steps:
        data = sequences(layout, "train", tokenizer, small.length, small.seed, 2**40)
        plan, every = LoopPlan(small.pretrain_rate, steps), max(20, steps // 100 * 20)
        found = train(model, objective, MaskedSequences(data), small, plan, folder, measure, every)
    finish(folder, model, tokenizer, replace(found, curve=[{"step": 0, **before}, *found.curve]))


# ---------------------------------------------------------------------------------------------------------------- tasks


def task_of(layout: SmallLayout, task: str) -> Task:
    """Hidden paragraphs are in documents as long as the long models read, in their tokens."""
    if task != "squad_haystack":
        return TASKS[task]()
    tokenizer = load.load_tokenizer(layout.start(), local=True)
    return counting(TASKS[task](lengths=(layout.small.length,)), tokenizer, "span")


def examples(layout: SmallLayout, task: str, split: Split) -> Sequence[Example]:
    """All training examples, or a random sample of the test examples. All hidden paragraphs have an answer."""
    found = task_of(layout, task).load(split, str(layout.packed / DATA))
    if split == "train":
        return balanced(found, layout.small.length * CHARACTERS) if task in MOSTLY_EMPTY else found
    order = random.Random(layout.small.seed).sample(range(len(found)), len(found))
    chosen: list[Example] = []
    for i in order:
        if len(chosen) == layout.small.examples:
            break
        example = found[i]
        if task != "squad_haystack" or example.answers:
            chosen.append(example)
    return chosen


def balanced(found: Sequence[Example], reach: int) -> list[Example]:
    """Equally many with an answer within this many characters and without one; those with one are repeated. A later
    answer would be truncated and teach that there is none."""
    answered = [example for example in found if any(end <= reach for _, end in example.answer_spans)]
    empty = [example for example in found if not example.answers]
    return answered * max(1, round(len(empty) / max(1, len(answered)))) + empty


def answer(layout: SmallLayout, name: str) -> None:
    """Learn to answer from single paragraphs, which are short for all models: a new head needs thousands of questions,
    and these are cheap. VCC opens the same share of a paragraph as of a long text."""
    small, folder = layout.small, layout.answering(name)
    tokenizer = load.load_tokenizer(layout.start(), local=True)
    torch.manual_seed(small.seed)  # of the new head
    length = variants.reads(name, small.length, small.short)
    options = variants.as_closed(name, small.short / small.length)
    model = variants.loaded(name, layout.pretrained(name), length, options, new_head=True)
    found = Trained()
    if small.answer_steps:
        objective = Answering.of(model, tokenizer, "span", small.short)
        data = TaskExamples(examples(layout, "squad", "train"), ExampleTokenizer(tokenizer, "span", small.short))
        paragraphs = replace(small, batch=PARAGRAPHS, at_once=PARAGRAPHS)
        found = train(model, objective, data, paragraphs, LoopPlan(small.tune_rate, small.answer_steps), folder)
    finish(folder, model, tokenizer, found)


def tune(layout: SmallLayout, name: str, task: str) -> None:
    """Learn a task, then answer its validation questions."""
    small, folder = layout.small, layout.tuned(name, task)
    length = variants.reads(name, small.length, small.short)
    tokenizer = load.load_tokenizer(layout.start(), local=True)
    model = variants.loaded(name, layout.answering(name), length)
    if not (folder / CURVE).exists():
        objective = Answering.of(model, tokenizer, "span", length)
        data = TaskExamples(examples(layout, task, "train"), ExampleTokenizer(tokenizer, "span", length))
        steps = variants.variant(name).tune_steps(small.tune_steps)
        found = train(model, objective, data, small, LoopPlan(small.tune_rate, steps), folder)
        finish(folder, model, tokenizer, found)
    score(layout, name, task)


def score(
    layout: SmallLayout,
    name: str,
    task: str,
    setting: str = "own",
    options: dict[str, Any] | None = None,
    length: int | None = None,
) -> None:
    """Answer with a tuned model, with other settings or at another length than in training."""
    small = layout.small
    reading = length or variants.reads(name, small.length, small.short)
    model = variants.loaded(name, layout.tuned(name, task), reading, options)
    model.eval().to(small.device)
    tokenizer = load.load_tokenizer(layout.start(), local=True)
    held_out = examples(layout, task, "validation")
    predictor = Predictor.of(task_of(layout, task), "span", model, tokenizer, reading, small.at_once)
    with half_precision(small.device):
        predictions, report, _ = predictor.answer_all(held_out)
    metrics = predictor.task.metrics(predictions, held_out)
    cut = {"cut_examples": report.cut_examples, "cut_answers": report.cut_answers}
    found = {"model": name, "task": task, "setting": setting, "length": reading, "examples": len(held_out)}
    file = layout.scores(name, task, setting, length)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps({**found, **cut, "metrics": metrics}, indent=1))


def time_alone(layout: SmallLayout, each: Sequence[dict[str, Any]]) -> None:
    """Milliseconds and memory per sequence, for one model after another: run it when nothing else runs. Failures do not
    stop the others and are reported at the end.
    """
    failed: list[Exception] = []
    for one in each:
        try:
            time_one(layout, **one)
        except Exception as error:
            error.add_note(f"while {one['name']} was timed with {one['setting']}")
            failed.append(error)
    if failed:
        raise ExceptionGroup("not timed", failed)


def time_one(layout: SmallLayout, name: str, setting: str, options: dict[str, Any]) -> None:
    small = layout.small
    length = variants.reads(name, small.length, small.short)
    model = variants.loaded(name, layout.tuned(name, small.tasks[0]), length, options)
    found = timing.measure(model, variants.vip_name(name), length, small.device, small.at_once)
    file = layout.times(name, setting)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps({"model": name, "setting": setting, "length": length, **found}, indent=1))


JOBS: dict[str, Callable[..., None]] = {
    "begin": begin,
    "pretrain": pretrain,
    "answer": answer,
    "tune": tune,
    "score": score,
    "time": time_alone,
}


def main(packed: str, out: str, settings: str, job: str, arguments: str) -> None:
    quiet()
    small = Small(**json.loads(settings))
    if small.device == "cuda":
        torch.set_float32_matmul_precision("high")
    JOBS[job](SmallLayout(Path(packed), Path(out), small), **json.loads(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
