"""Evaluate a model on a task."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Literal

import torch
from rich.console import Console

from vcc.commands.options import at_least
from vcc.data.example import Head
from vcc.errors import UsageError
from vcc.hosts.quiet import quiet
from vcc.tasks import TASKS
from vcc.tasks.metrics import NoReference
from vcc.tasks.task import Split, Task
from vcc.train.checkpoint import as_json
from vcc.train.draws import some_of
from vcc.train.models import ModelChoice, choose_head, compile_model, described, load_model, load_tokenizer
from vcc.train.objectives import AUTO_CLASSES
from vcc.train.predict import Predictor, counting
from vcc.train.processes import rank, world_size
from vcc.train.scores import keep_earlier, paper_result, score_table, write_scores
from vcc.train.watch import say


def evaluate(
    task: Annotated[Task, TASKS, "task"],
    model: ModelChoice,
    head: Annotated[Head | None, "kind of answer (default: the task's first that fits the model)"] = None,
    split: Annotated[Split, "dataset split"] = "validation",
    length: Annotated[
        int | None, "maximum input tokens (default: the run's or the task's); truncated inputs are counted"
    ] = None,
    data: Annotated[str | None, "file, folder or hub name (default: $VCC_DATA or the task's hub name)"] = None,
    examples: Annotated[int | None, "random sample of this many examples"] = None,
    batch_size: Annotated[int, "examples per batch and device"] = 8,
    precision: Annotated[Literal["auto", "fp32", "bf16", "fp16"], "auto: bf16 on a GPU, fp32 on a CPU"] = "auto",
    device: Annotated[Literal["auto", "cpu"], "auto: the GPU if there is one"] = "auto",
    compile: Annotated[bool, "compile the model; the first batch of each length takes a minute"] = False,
    out: Annotated[Path | None, "output folder for metrics.json and predictions.jsonl (default: the model's)"] = None,
) -> dict[str, float]:
    """Evaluate a model on a task: print its metrics with 95% intervals and write every prediction to a file.

    By default a model made by `finetune` is evaluated with the settings of its training, with or without VCC.
    """
    from accelerate import PartialState

    at_least(1, length=length, examples=examples, batch_size=batch_size)
    quiet()
    known = model.record if model.record.get("task") == task.name else {}
    head = choose_head(task, head or known.get("head"), model)
    tokenizer = load_tokenizer(model)
    task = counting(task, tokenizer, head)
    chosen = some_of(task.load(split, data), examples)
    if not len(chosen):
        raise UsageError(f"the {split} split of {task.name} has no examples")
    length = length or known.get("length") or task.recipe(head).length
    for option in task.options:
        trained, here = known.get(f"task_{option}"), getattr(task, option)
        if known and as_json(here) != trained:
            say(f"the run that made this model had {option} {trained}; here it is {here}")
    place = PartialState(cpu=device == "cpu" or not torch.cuda.is_available()).device
    compression = task.recipe(head).compression_at(length)
    network = load_model(model, AUTO_CLASSES[head], length, 0, tokenizer, new_head=False, compression=compression)
    network.to(place)
    if compile:
        compile_model(network)
    say(f"task {task.name}, head {head}, inputs of at most {length:,} tokens; {described(network)}")
    predictor = Predictor.of(task, head, network, tokenizer, length, batch_size)
    kind = precision if precision != "auto" else "bf16" if place.type == "cuda" else "fp32"
    types = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    with torch.autocast(place.type, types[kind], enabled=kind != "fp32"):
        predictions, report, share = predictor.answer_all(chosen, show=True)
    metrics: dict[str, float] = {}
    try:
        metrics = task.metrics(predictions, chosen)
    except NoReference as error:
        say(f"not scored: {error}")
    if rank() == 0:
        beside = Path(model.model) if Path(model.model).is_dir() else Path(".")
        folder = out or beside / f"evaluation-{task.name}-{split}"
        say(str(replace(report, cut_targets=0)))  # references are scored whole
        if share.inputs:
            say(str(share))
        if metrics:
            paper = paper_result(task, head, network, length)
            Console().print(score_table(task, head, metrics, len(chosen), paper))
        settings = {
            "task": task.name,
            "head": head,
            "split": split,
            "length": length,
            "model": model.model,
            "vcc": getattr(network.config, "vcc", None),
            "precision": kind,
            "processes": world_size(),
            "truncation": asdict(report),
            "compressed": asdict(share) if share.inputs else None,
        }
        if kept := keep_earlier(folder):
            say(f"earlier results kept: {', '.join(map(str, kept))}")
        write_scores(folder, settings, metrics, predictions, chosen)
        say(f"written: {folder}/metrics.json, {folder}/predictions.jsonl")
    return metrics
