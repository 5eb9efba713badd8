"""Reports of the small scale, from the files that exist."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reproduction.experiment import Workspace
from reproduction.report import Picture, Point, ReportTable, interval
from reproduction.small.layout import CURVE, OWN
from reproduction.small.settings import Small
from reproduction.small.steps import Setting
from reproduction.small.variants import VARIANTS, reads
from vcc.tasks import TASKS

TIMES = ("forward_ms_one", "forward_ms_each", "forward_gpu_ms_each", "training_ms_each", "training_gpu_ms_each")


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def metric(task: str) -> str:
    return TASKS[task]().metric_names[0]


def accuracy(at: Workspace, model: str, task: str, setting: str = OWN, length: int | None = None) -> dict[str, float]:
    found = read(at.layout.scores(model, task, setting, length))
    return found["metrics"] if found else {}


def times(at: Workspace, model: str, setting: str = OWN) -> dict[str, Any]:
    return read(at.layout.times(model, setting)) or {}


def curve(at: Workspace, model: str) -> list[dict[str, float]]:
    found = read(at.layout.pretrained(model) / CURVE)
    return [point for point in found["curve"] if "log_perplexity" in point] if found else []


def seen(at: Workspace, models: Sequence[str]) -> list[str]:
    """These models, and others trained in the same folder."""
    return [name for name in VARIANTS if name in models or curve(at, name)]


def comparison(at: Workspace, models: Sequence[str]) -> tuple[ReportTable, ...]:
    """Our table 1: perplexity, accuracy with intervals, time and memory; and what the names mean."""
    models, tasks = seen(at, models), at.small.tasks
    rows: list[tuple[Any, ...]] = []
    for model in models:
        learned = curve(at, model)
        words = [f"{point['log_perplexity']:.3f}" for point in (learned[:1] + learned[-1:] if learned else [])]
        scores = [interval(accuracy(at, model, task), metric(task)) for task in tasks]
        took = times(at, model)
        length = reads(model, at.small.length, at.small.short)
        speed = [took.get(name) for name in TIMES]
        memory = took.get("training_gib_several")
        ms = [f"{value:.2f}" if value else None for value in speed]
        rows.append((model, f"{length:,}", " → ".join(words), *scores, *ms, f"{memory:.2f}" if memory else None))
    several = f"batch {at.small.at_once}"
    columns = (
        "model", "reads", "log perplexity, before → after", *(f"{task} {metric(task)}" for task in tasks),
        "forward ms, one", f"forward ms each, {several}", "the GPU busy",
        f"training ms each, {several}", "the GPU busy", f"training GiB, {several}",
    )  # fmt: skip
    told = tuple((model, VARIANTS[model].told) for model in models)
    return ReportTable("The same start, tokens and steps", columns, tuple(rows)), ReportTable(
        "The models", ("model", "what"), told
    )


def perplexities(at: Workspace, models: Sequence[str]) -> Picture:
    points = [
        Point(model, point["step"], point["log_perplexity"]) for model in seen(at, models) for point in curve(at, model)
    ]
    return Picture("Held-out masked words", "steps of pretraining", "log perplexity", tuple(points))


def frontier(at: Workspace, task: str, settings: Sequence[Setting]) -> tuple[ReportTable, Picture]:
    """Accuracy against time over settings."""
    name = metric(task)
    rows: list[tuple[Any, ...]] = []
    points = []
    whose = ", the GPU busy" if at.small.device == "cuda" else ""
    for setting in settings:
        found, took = accuracy(at, setting.model, task, setting.name), times(at, setting.model, setting.name)
        ms = took.get("forward_gpu_ms_each" if whose else "forward_ms_each")
        rows.append((setting.model, setting.name, interval(found, name), f"{ms:.2f}" if ms else None))
        if found and ms:
            low, high = found.get(f"{name}_low"), found.get(f"{name}_high")
            points.append(Point(setting.model, ms, found[name], low, high, label=setting.name))
    table = ReportTable(
        f"{task}: {name} over settings", ("model", "setting", name, f"forward ms each{whose}"), tuple(rows)
    )
    return table, Picture(task, f"forward ms per sequence{whose}", f"{name}, %", tuple(points), log_x=True)


def by_length(at: Workspace, task: str, lengths: dict[str, list[int]]) -> tuple[ReportTable, Picture]:
    """Accuracy against the tokens read of the same documents."""
    name = metric(task)
    rows: list[tuple[Any, ...]] = []
    points = []
    for model, several in lengths.items():
        for length in several:
            found = accuracy(at, model, task, OWN, length)
            rows.append((model, f"{length:,}", interval(found, name)))
            if found:
                points.append(Point(model, length, found[name], found.get(f"{name}_low"), found.get(f"{name}_high")))
    table = ReportTable(f"{task}: {name} by tokens read", ("model", "reads", name), tuple(rows))
    return table, Picture(task, "tokens read", f"{name}, %", tuple(points), log_x=True)


def scale_of(small: Small) -> str:
    return (
        f"{small.start_steps} steps of {small.batch} x {small.length} tokens make the common checkpoint, "
        f"{small.pretrain_steps} more pretrain each model, {small.answer_steps} of short paragraphs teach it to "
        f"answer, {small.tune_steps} teach each task; "
        f"{small.examples} validation examples; {small.device}"
    )
