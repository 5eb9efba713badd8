"""The table of tasks: a cell for every task and way, and the report of those that are done."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reproduction.experiment import Experiment, ProcessStep, Workspace, given, missing_packages
from reproduction.report import Report, ReportTable, Value
from reproduction.small.pack import MODEL
from reproduction.tasks.cell import result_file
from reproduction.tasks.packed import pack
from reproduction.tasks.specs import LONG_TASKS, WAYS

STARTING = 0.5  # minutes of a cell besides its training; most of it compiles while another one trains
SHOWN = {"accuracy": "accuracy", "macro_f1": "macro F1", "token_f1": "token F1"}


class Tasks(Experiment):
    """VCC beside chunks and truncation, from one checkpoint, for the same time on the device."""

    name = "tasks"
    title = "classes, pairs, tags and choices on long documents, trained from one checkpoint for the same time"
    claim = "Not in the paper, which measures question answering, multiple choice and summarization."

    def cells(self, at: Workspace) -> list[tuple[str, str]]:
        """Those of --tasks and --models; names of other experiments are ignored."""
        wanted = [way for way in at.small.models if way in WAYS] or list(WAYS)
        return [(name, way) for name in self.names(at) for way in LONG_TASKS[name].ways if way in wanted]

    def names(self, at: Workspace) -> list[str]:
        return [name for name in at.small.tasks if name in LONG_TASKS] or list(LONG_TASKS)

    def packed(self, at: Workspace) -> Path:
        """--data, if it is a packed folder, else the one in --out."""
        given = Path(at.data) if at.data else at.packed
        return given if (given / MODEL).is_dir() else at.packed

    def steps(self, at: Workspace) -> list[ProcessStep]:
        return [self.step(at, task, way) for task, way in self.cells(at)]

    def step(self, at: Workspace, task: str, way: str) -> ProcessStep:
        settings = json.dumps(asdict(at.small))
        words = [
            sys.executable,
            "-m",
            "reproduction.tasks.cell",
            str(self.packed(at)),
            str(at.out),
            settings,
            task,
            way,
        ]
        minutes = at.small.cell_seconds * LONG_TASKS[task].time / 60 + STARTING
        return ProcessStep(
            f"tasks {task} {way}", tuple(words), result_file(at.out, task, way), minutes, missing=self.missing(at)
        )

    def missing(self, at: Workspace) -> tuple[str, ...]:
        lacks = list(missing_packages("rich"))
        if not (self.packed(at) / MODEL).is_dir():
            lacks.append(f"{self.packed(at)}: packed weights and tokens; made by --pack true with --data and --model")
        if at.small.device == "cuda":
            import torch

            if not torch.cuda.is_available():
                lacks.append("a GPU (--device cpu for a tiny run)")
        return tuple(lacks)

    def pack(self, at: Workspace, megabytes: float) -> Path:
        assert at.data is not None
        return pack(Path(at.data), given(at.model, "--model"), at.packed, self.names(at))

    def report(self, at: Workspace) -> Report:
        found = {cell: read(result_file(at.out, *cell)) for cell in self.cells(at)}
        done = {cell: result for cell, result in found.items() if result is not None}
        what = ReportTable(
            "The tasks",
            ("task", "predicted", "tokens", "ways"),
            tuple((name, task.told, f"{task.length:,}", ", ".join(task.ways)) for name, task in LONG_TASKS.items()),
        )
        ways = ReportTable(
            "The ways to read",
            ("way", "reads", "VIPs"),
            tuple((name, way.told, way.vips) for name, way in WAYS.items()),
        )
        tables = [what, ways]
        if done:
            columns = (
                "task", "way", "score", "95%", "macro F1", "95% of it", "GPU s", "steps", "documents read",
                "ms a document", "GiB",
            )  # fmt: skip
            tables.insert(0, ReportTable("Scores", columns, tuple(line(result) for result in done.values())))
        return Report(self.name, self.title, self.claim, tuple(tables), settings=asdict(at.small))


def read(file: Path) -> dict[str, Any] | None:
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def line(result: dict[str, Any]) -> tuple[Value, ...]:
    metrics = result["metrics"]
    main = "token_f1" if "token_f1" in metrics else "accuracy"
    macro = metrics.get("macro_f1")
    return (
        result["task"], result["way"], f"{SHOWN[main]} {metrics[main]:.1f}", interval(metrics, main), macro,
        interval(metrics, "macro_f1"), result["seconds"], f"{result['steps']:,}", f"{result['documents']:,}",
        f"{result['read_ms']:.2f}", result["peak_gib"],
    )  # fmt: skip


def interval(metrics: dict[str, float], name: str) -> str:
    low = metrics.get(f"{name}_low")
    return "" if low is None else f"{low:.1f} to {metrics[f'{name}_high']:.1f}"
