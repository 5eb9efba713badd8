"""Evaluate a model on a task."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from rich.console import Console
from rich.table import Table
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vcc.data.answers import predict_choice, predict_spans, predict_text
from vcc.data.example import Example, Head, Prediction
from vcc.data.features import ExampleTokenizer, Features, TruncationReport
from vcc.errors import DataError, UsageError
from vcc.tasks import TASKS
from vcc.tasks.metrics import NoReference
from vcc.tasks.task import Split, Task
from vcc.train.models import ModelChoice, choose_head, load_model, load_tokenizer
from vcc.train.objectives import AUTO_CLASSES, Answering, inputs_of
from vcc.train.processes import gathered, rank, world_size
from vcc.train.run import OutOfMemory, is_out_of_memory
from vcc.train.watch import console, quiet, say


def evaluate(
    task: Annotated[Task, TASKS, "what to answer"],
    model: ModelChoice,
    head: Annotated[Head | None, "kind of answer; unless given, the task's first that fits the model"] = None,
    split: Annotated[Split, "which examples"] = "validation",
    length: Annotated[int | None, "tokens of an input; unless given, the task's; more is cut, and counted"] = None,
    data: Annotated[str | None, "file, folder or hub name; unless given, $VCC_DATA or the task's hub name"] = None,
    examples: Annotated[int | None, "use only this many"] = None,
    batch_size: Annotated[int, "examples at a time on each device"] = 8,
    precision: Annotated[Literal["auto", "fp32", "bf16", "fp16"], "auto: bf16 on a GPU, fp32 on a CPU"] = "auto",
    device: Annotated[Literal["auto", "cpu"], "auto: the GPU if there is one"] = "auto",
    out: Annotated[Path | None, "folder for metrics.json and predictions.jsonl; unless given, beside the model"] = None,
) -> dict[str, float]:
    """Evaluate a model on a task: a table of its metrics with their 95% intervals, and every answer in a file."""
    from accelerate import PartialState

    quiet()
    head = choose_head(task, head, model)
    with as_usage():
        found = task.load(split, data)
    chosen = found[:examples] if examples else found
    if not len(chosen):
        raise UsageError(f"the {split} split of {task.name} has no example")
    recipe = task.recipe(head)
    length = length or recipe.length
    place = PartialState(cpu=device == "cpu" or not torch.cuda.is_available()).device
    tokenizer = load_tokenizer(model)
    network = load_model(model, AUTO_CLASSES[head], length, 0, len(tokenizer)).to(place)
    with as_usage():
        tokenize = ExampleTokenizer(tokenizer, head, length, recipe.output_length or 512)
    answering = Answering.of(network, tokenizer, head, length)
    answers = Answers(
        network,
        tokenizer,
        tokenize,
        answering,
        batch_size,
        recipe.output_length or 512,
        task.no_answer,
        task.max_answer_tokens,
    )
    kind = precision if precision != "auto" else "bf16" if place.type == "cuda" else "fp32"
    types = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    with torch.autocast(place.type, types[kind], enabled=kind != "fp32"):
        predictions, report = answer_all(answers, chosen, show=True)
    metrics: dict[str, float] = {}
    try:
        metrics = task.metrics(predictions, chosen)
    except NoReference as error:
        say(f"not scored: {error}")
    if rank() == 0:
        beside = Path(model.model) if Path(model.model).is_dir() else Path(".")
        folder = out or beside / f"evaluation-{task.name}-{split}"
        say(str(replace(report, cut_targets=0)))  # references are scored whole
        if metrics:
            Console().print(table(task, head, metrics, len(chosen)))
        write(
            folder,
            metrics,
            predictions,
            chosen,
            {
                "task": task.name,
                "head": head,
                "split": split,
                "length": length,
                "model": model.model,
                "vcc": getattr(network.config, "vcc", None),
                "precision": kind,
                "processes": world_size(),
                "truncation": asdict(report),
            },
        )
        say(f"written: {folder}/metrics.json, {folder}/predictions.jsonl")
    return metrics


@contextlib.contextmanager
def as_usage() -> Iterator[None]:
    """What data and tasks reject, they reject with a sentence for the person who asked."""
    try:
        yield
    except (DataError, ValueError) as error:
        raise UsageError(str(error)) from error


@dataclass(frozen=True)
class Answers:
    """A model that answers examples of one task."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    tokenize: ExampleTokenizer
    answering: Answering
    batch_size: int
    output_length: int
    allow_none: bool  # whether "no answer" is an answer
    max_answer_tokens: int

    @torch.no_grad()
    def of(self, examples: Sequence[Example], features: Sequence[Features]) -> list[Prediction]:
        """The answers to one batch."""
        batch = {name: value.to(self.model.device) for name, value in self.answering.collate(features).items()}
        if self.answering.head == "text":
            ids = self.model.generate(  # type: ignore[operator]
                **inputs_of(batch),
                max_new_tokens=self.output_length,
                do_sample=False,
                num_beams=1,
                synced_gpus=world_size() > 1,
            )
            return [predict_text(one, row, self.tokenizer) for one, row in zip(examples, ids, strict=True)]
        output = self.model(**inputs_of(batch))
        if self.answering.head == "choice":
            return [predict_choice(one, row) for one, row in zip(examples, output.logits.float().cpu(), strict=True)]
        starts, ends = output.start_logits.float().cpu(), output.end_logits.float().cpu()
        return [
            predict_spans(one, known, start, end, allow_none=self.allow_none, max_tokens=self.max_answer_tokens)
            for one, known, start, end in zip(examples, features, starts, ends, strict=True)
        ]


def answer_all(
    answers: Answers, examples: Sequence[Example], show: bool = False
) -> tuple[list[Prediction], TruncationReport]:
    """All answers in the order of the examples, each process doing its share, and what was cut.

    The shares are made equal by answering a few examples twice: processes that hold parts of one model must call it
    equally often.
    """
    number, processes = len(examples), world_size()
    share = -(-number // processes)
    mine = [rank() + processes * i for i in range(share)]  # those past the end are the ones answered twice
    was_training = answers.model.training
    answers.model.eval()
    found: dict[int, Prediction] = {}
    report = TruncationReport()
    for first in track(range(0, share, answers.batch_size), show):
        places = mine[first : first + answers.batch_size]
        chosen = [place % number for place in places]
        batch = [examples[i] for i in chosen]
        features = [answers.tokenize(example) for example in batch]
        report += TruncationReport.of(one for place, one in zip(places, features, strict=True) if place < number)
        try:
            found.update(zip(chosen, answers.of(batch, features), strict=True))
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            longest = max(one.length for one in features)
            fewer = f"--batch-size {len(batch) // 2}, or " if len(batch) > 1 else ""
            raise OutOfMemory(
                f"out of memory: length {longest} with {len(batch)} examples at a time did not fit. Try "
                f"{fewer}--length {longest // 2}."
            ) from error
    answers.model.train(was_training)
    shares = gathered((found, report))
    everyone = {i: prediction for part, _ in shares for i, prediction in part.items()}
    total = sum((part for _, part in shares), TruncationReport())
    return [everyone[i] for i in range(number)], total


def track(work: range, show: bool) -> Any:
    from rich.progress import track as bar

    shown = show and console.is_terminal and rank() == 0
    return bar(work, "answering", console=console, transient=True) if shown else work


def table(task: Task, head: Head, metrics: dict[str, float], examples: int) -> Table:
    """The metrics with their intervals, those of `metric_names` first, and the best of the paper beside them."""
    paper = {
        name: score
        for result in task.results()
        if result.head == head and result.method.startswith("VCC")
        for name, score in result.scores
    }
    shown = Table(title=f"{task.name}, {head}, {examples:,} examples")
    for column in ("metric", "%", "95% interval", "VCC in the paper"):
        shown.add_column(column, justify="left" if column == "metric" else "right")
    plain = [name for name in metrics if not name.endswith(("_low", "_high"))]
    for name in sorted(plain, key=lambda name: (name not in task.metric_names, plain.index(name))):
        low, high = metrics.get(f"{name}_low"), metrics.get(f"{name}_high")
        interval = f"{low:.2f} to {high:.2f}" if low is not None and high is not None else ""
        shown.add_row(name, f"{metrics[name]:.2f}", interval, f"{paper[name]:.1f}" if name in paper else "")
    return shown


def write(
    folder: Path,
    metrics: dict[str, float],
    predictions: Sequence[Prediction],
    examples: Sequence[Example],
    settings: dict[str, Any],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    found = {**settings, "examples": len(examples), "metrics": metrics}
    (folder / "metrics.json").write_text(json.dumps(found, indent=1))
    with (folder / "predictions.jsonl").open("w", encoding="utf-8") as file:
        for prediction, example in zip(predictions, examples, strict=True):
            file.write(json.dumps({**asdict(prediction), "answers": example.answers, "group": example.group}) + "\n")
