"""The results of an evaluation: a table, and files with every answer."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from rich.table import Table

from vcc.data.example import Example, Head, Prediction
from vcc.files import write_whole
from vcc.hosts.forward.wrapped import Wrapped
from vcc.tasks.paper import Result
from vcc.tasks.task import Task

METRICS, PREDICTIONS = "metrics.json", "predictions.jsonl"


# The paper's models: size by layers, width and feed-forward width; name by model type.
SIZES = {(12, 768, 3072): "base", (24, 1024, 4096): "large", (24, 1024, 16384): "3b"}
METHODS = {"roberta": "RoBERTa", "longformer": "Longformer", "big_bird": "BigBird", "mra": "MRA", "t5": "T5"}
METHODS |= {"roberta-prelayernorm": "RoBERTa", "longt5": "LongT5", "led": "LED"}


def paper_result(task: Task, head: Head, model: Any, length: int) -> Result | None:
    """The paper's result for a model of this kind, size and length on this task, if any."""
    config = model.config
    inner = getattr(config, "intermediate_size", getattr(config, "d_ff", None))
    size = SIZES.get((config.num_hidden_layers, config.hidden_size, inner or 0))
    methods = ("VCC", "VCC*") if isinstance(model, Wrapped) else (METHODS.get(config.model_type),)
    same = [one for one in task.results() if (one.head, one.size, one.length) == (head, size, length)]
    return next((one for method in methods for one in same if one.method == method), None)


def score_table(
    task: Task, head: Head, metrics: Mapping[str, float], examples: int, result: Result | None = None
) -> Table:
    """The metrics with their intervals, those of `metric_names` first, beside the paper's."""
    paper = {} if result is None else dict(result.scores)
    shown = Table(title=f"{task.name}, {head}, {examples:,} examples")
    theirs = () if result is None else (f"{result.method} {result.size} {result.length:,} in the paper",)
    for column in ("metric", "%", "95% interval", *theirs):
        shown.add_column(column, justify="left" if column == "metric" else "right")
    plain = [name for name in metrics if not name.endswith(("_low", "_high"))]
    for name in sorted(plain, key=lambda name: (name not in task.metric_names, plain.index(name))):
        low, high = metrics.get(f"{name}_low"), metrics.get(f"{name}_high")
        interval = f"{low:.2f} to {high:.2f}" if low is not None and high is not None else ""
        known = (f"{paper[name]:.1f}" if name in paper else "",) if result else ()
        shown.add_row(name, f"{metrics[name]:.2f}", interval, *known)
    return shown


def keep_earlier(folder: Path) -> list[Path]:
    """Rename the files of an earlier evaluation in this folder with the next free number; -> their names."""
    if not (folder / METRICS).exists():
        return []
    number = next(n for n in count(1) if not numbered(folder / METRICS, n).exists())
    names = [folder / name for name in (METRICS, PREDICTIONS) if (folder / name).exists()]
    return [path.rename(numbered(path, number)) for path in names]


def numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}-{number}{path.suffix}")


def write_scores(
    folder: Path,
    settings: Mapping[str, Any],
    metrics: Mapping[str, float],
    predictions: Sequence[Prediction],
    examples: Sequence[Example],
) -> None:
    """metrics.json, with the settings they were measured with, and predictions.jsonl beside the right answers."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / PREDICTIONS).open("w", encoding="utf-8") as file:
        for prediction, example in zip(predictions, examples, strict=True):
            file.write(json.dumps({**asdict(prediction), "answers": example.answers, "group": example.group}) + "\n")
    found = {**settings, "examples": len(examples), "metrics": metrics}
    write_whole(folder / METRICS, json.dumps(found, indent=1))
