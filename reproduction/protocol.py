"""The paper's protocol as command lines: continue pretraining, fine-tune over the published grid, keep the best."""

import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.experiment import ProcessStep, Workspace, missing_packages
from vcc.tasks import TASKS
from vcc.tasks.paper import Result
from vcc.tasks.pretraining import PRETRAININGS

HUB = {
    ("RoBERTa", "base"): "FacebookAI/roberta-base",
    ("RoBERTa", "large"): "FacebookAI/roberta-large",
    ("T5", "base"): "google-t5/t5-base",
    ("T5", "large"): "google-t5/t5-large",
    ("T5", "3b"): "google-t5/t5-3b",
    ("LongT5", "base"): "google/long-t5-tglobal-base",
    ("LED", "base"): "allenai/led-base-16384",
}
PILE = "monology/pile-uncopyrighted"  # The Pile without copyrighted parts; --text names another copy
KINDS = {"RoBERTa": "dense", "BigBird": "bigbird", "Longformer": "longformer", "MRA": "mra"}


# Presets of continued pretraining; models that are not listed are used as published.
ENCODERS = {"VCC": "vcc", "VCC-150k": "vcc-150k", "VCC*": "vcc-star", **{name: "baseline" for name in KINDS}}
ENCODER_DECODERS = {"VCC": "t5"}
EVERY = 10_000  # steps between measurements of perplexity

# Approximate numbers of training examples, for time estimates only.
EXAMPLES = {
    "hotpotqa": 90_447, "wikihop": 43_738, "quality": 2_523, "cnn_dailymail": 287_113, "mediasum": 443_596,
    "qasper": 2_567, "contract_nli": 7_191, "narrative_qa": 55_003, "arxiv": 203_037, "summ_screen_fd": 3_673,
    "gov_report": 17_457, "qmsum": 1_257, "multinews": 44_972,
}  # fmt: skip
SIZES = {"base": 1.0, "large": 3.3, "3b": 13.0}


@dataclass(frozen=True)
class PaperCell:
    """One model on one task: a row of a table, or a part of one."""

    method: str
    size: str
    length: int
    task: str
    head: str
    compression: Any = None

    @staticmethod
    def of(result: Result) -> "PaperCell":
        return PaperCell(result.method, result.size, result.length, result.task, result.head, result.compression)

    @property
    def ours(self) -> bool:
        return self.method.startswith("VCC")

    @property
    def model(self) -> str:
        return f"{'encoder' if self.head != 'text' else 't5'}-{self.method.replace('*', '-star')}-{self.size}".lower()

    @property
    def folder(self) -> str:
        k_h = f"-k{self.compression.k}-h{self.compression.h}" if self.compression else ""
        return f"{self.model}-{self.length}{k_h}-{self.task}".lower()

    @property
    def preset(self) -> str | None:
        if self.head == "text":
            return ENCODER_DECODERS.get(self.method)
        return None if self.length == 512 else ENCODERS.get(self.method)


def milliseconds(cell: PaperCell) -> float:
    """An estimate of the training time of one sequence on an H200, from docs/performance.md."""
    thousands = cell.length / 1024
    if cell.ours:
        base = 5.0 + 0.6 * thousands
    elif cell.method in ("RoBERTa", "T5"):
        base = 3.8 * thousands + 0.15 * thousands**2
    else:
        base = 10.0 * thousands
    return base * SIZES[cell.size] * (1.6 if cell.head == "text" else 1.0)


def module(name: str, *words: Any) -> tuple[str, ...]:
    return (sys.executable, "-m", name, *map(str, words))


def vcc(*words: Any) -> tuple[str, ...]:
    return module("vcc.cli", *words)


def shown(command: Sequence[str]) -> str:
    return "vcc " + " ".join(command[3:])


def needs(at: Workspace) -> tuple[str, ...]:
    lacks = list(missing_packages("accelerate", "rouge_score", "tensorboard"))
    if at.data is None:
        lacks += missing_packages("datasets")
    import torch

    if not torch.cuda.is_available():
        lacks.append("a GPU")
    return tuple(lacks)


def start_name(cell: PaperCell, at: Workspace) -> str:
    """The published checkpoint of a cell, or the one given instead."""
    family = "RoBERTa" if cell.head != "text" else cell.method if cell.method in ("LongT5", "LED") else "T5"
    if family == "RoBERTa" and at.model and cell.size == "base":
        return at.model
    if family == "T5" and at.t5 and cell.size == "base":
        return at.t5
    return HUB[family, cell.size]


def cell_steps(cell: PaperCell, at: Workspace) -> list[ProcessStep]:
    """From the published checkpoint to the scores of every point of the grid."""
    lacks = needs(at)
    steps: list[ProcessStep] = []
    before: tuple[Path, ...] = ()  # outputs of the last step
    start, out = start_name(cell, at), at.out / "paper"
    wrapped = ("--vcc", str(cell.ours).lower())
    if cell.head != "text" and cell.method in KINDS and cell.length > 512:
        folder = out / "started" / cell.model
        command = module("reproduction.convert", start, KINDS[cell.method], cell.length, folder)
        done = folder / "config.json"
        steps.append(ProcessStep(f"start {cell.method} from {start}", command, done, 1, before, False, lacks))
        start, before = str(folder), (done,)
    if cell.preset is not None:
        more, folder = PRETRAININGS[cell.preset], out / "pretrained" / cell.model
        command = vcc(
            "pretrain", at.text or PILE, "--model", start, "--preset", cell.preset, "--eval-every", EVERY,
            "--out", folder, "--resume",
        )  # fmt: skip
        took = (
            more.steps * more.batch_size * milliseconds(PaperCell(cell.method, cell.size, 4096, "", cell.head)) / 60_000
        )
        done = folder / f"checkpoint-{more.steps}" / "config.json"
        steps.append(ProcessStep(shown(command), command, done, took, before, True, lacks))
        start, before = str(folder), (done,)
    recipe = TASKS[cell.task]().recipe(cell.head)  # type: ignore[arg-type]
    settings: tuple[Any, ...] = ()
    if cell.compression:
        settings = ("--scales", f"{cell.compression.k},1", "--budget", cell.compression.h)
    for rate, batch, epochs in itertools.product(recipe.learning_rates, recipe.batch_sizes, recipe.epochs):
        folder = out / "tuned" / cell.folder / f"lr{rate:g}-b{batch}-e{epochs}"
        where = ("--data", at.data) if at.data else ()
        common = ("--head", cell.head, "--length", cell.length, *where, *wrapped)
        tune = vcc(
            "finetune", cell.task, "--model", start, *common, *settings, "--lr", rate, "--batch-size", batch,
            "--epochs", epochs, "--out", folder, "--resume",
        )  # fmt: skip
        took = EXAMPLES.get(cell.task, 10_000) * epochs * milliseconds(cell) / 60_000
        steps.append(ProcessStep(shown(tune), tune, folder / "finished", took, before, True, lacks, marks=True))
        test = vcc("evaluate", cell.task, "--model", folder, *common, "--out", folder / "scores")
        scores, tuned = folder / "scores" / "metrics.json", (folder / "finished",)
        steps.append(ProcessStep(shown(test), test, scores, took / 30 + 1, tuned, True, lacks))
    return steps


def best(cell: PaperCell, at: Workspace) -> dict[str, float] | None:
    """The metrics of the best point of the grid so far, by the task's first metric."""
    first = TASKS[cell.task]().metric_names[0]
    found = []
    for file in sorted((at.out / "paper" / "tuned" / cell.folder).glob("*/scores/metrics.json")):
        metrics = json.loads(file.read_text(encoding="utf-8"))["metrics"]
        if first in metrics:
            found.append(metrics)
    return max(found, key=lambda metrics: metrics[first]) if found else None
