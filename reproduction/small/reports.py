"""Reports of the small scale, from the files that exist."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reproduction.experiment import Workspace
from reproduction.picture import Picture, Point, percent
from reproduction.report import ReportTable, interval
from reproduction.small.layout import CURVE, HIDDEN, OWN
from reproduction.small.rates import CHOOSES, HALVES, REPORTED
from reproduction.small.settings import Small
from reproduction.small.small_tasks import FACT_F1, small_task
from reproduction.small.steps import Setting
from reproduction.small.variants import VARIANTS, reads

TIMES = ("forward_ms_one", "forward_ms_each", "forward_gpu_ms_each", "training_ms_each", "training_gpu_ms_each")


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def metric(task: str) -> str:
    return small_task(task).metric_names[0]


def shown(task: str) -> list[str]:
    """The metrics of a task in the table."""
    return [name for i, name in enumerate(small_task(task).metric_names) if i == 0 or name == FACT_F1]


def accuracy(at: Workspace, model: str, task: str, setting: str = OWN, length: int | None = None) -> dict[str, float]:
    """The metrics of a model, averaged over its seeds. Their interval is then from the lowest seed to the highest."""
    files = [at.layout.repeated(n).scores(model, task, setting, length) for n in range(at.small.seeds)]
    return over_seeds([one["metrics"] for one in map(read, files) if one], small_task(task).metric_names)


def over_seeds(found: Sequence[dict[str, float]], names: Sequence[str]) -> dict[str, float]:
    """Metrics averaged over seeds."""
    if len(found) < 2:
        return found[0] if found else {}
    means: dict[str, float] = {}
    for name in (name for name in names if name in found[0]):
        values = [one[name] for one in found]
        means |= {name: sum(values) / len(values), f"{name}_low": min(values), f"{name}_high": max(values)}
    return means


def searched(at: Workspace, models: Sequence[str]) -> tuple[ReportTable, ...]:
    """The best learning rate of each model on each task, and all others beside it. Without a search nothing."""
    rates = at.small.rates
    if not rates:
        return ()
    rows: list[tuple[Any, ...]] = []
    for task in at.small.tasks:
        name = metric(task)
        for model in models:
            each: list[str | None] = []
            for rate in rates:
                found = (read(at.layout.rated(rate).scores(model, task)) or {}).get(HALVES)
                each.append(f"{found[CHOOSES][name]:.1f}, {found[REPORTED][name]:.1f}" if found else None)
            best = (read(at.layout.chosen(model, task)) or {}).get("rate")
            seeds = range(at.small.seeds if best else 0)
            files = [at.layout.repeated(n).rated(best).scores(model, task) for n in seeds]
            halves = [one[HALVES][REPORTED] for one in map(read, files) if one and HALVES in one]
            reported = interval(over_seeds(halves, [name]), name)
            rows.append((f"{task} {name}", model, f"{best:g}" if best else None, reported, str(len(halves)), *each))
    columns = ("task", "model", "best rate", "its score", "seeds", *(f"{rate:g}" for rate in rates))
    told = "Learning rates: one half of the questions chooses, the other half is reported (in the columns: both)"
    return (ReportTable(told, columns, tuple(rows)),)


def opened(at: Workspace, model: str, task: str) -> str | None:
    """The share of answers whose segment is opened, in %, by layer."""
    found = read(at.layout.scores(model, task)) or {}
    shares = [f"{100 * share:.0f}" for share in found.get("opened", {}).values()]
    return " ".join(shares) or None


def ceiling(at: Workspace, model: str) -> float | None:
    """F1 on the paragraphs alone, before they are hidden."""
    folder = at.layout.reader(VARIANTS[model].start) if at.small.reader else at.layout.answering(model)
    found = read(folder / CURVE)
    points = [point["paragraph_f1"] for point in found["curve"] if "paragraph_f1" in point] if found else []
    return points[-1] if points else None


def gpu_seconds(at: Workspace, model: str, folder: Path) -> float | None:
    """Steps of a training times the time of one alone on the device."""
    found, took = read(folder / CURVE), times(at, model)
    each = took.get("training_gpu_ms_each") or took.get("training_ms_each")
    return found["steps"] * at.small.batch * each / 1000 if found and each else None


def times(at: Workspace, model: str, setting: str = OWN) -> dict[str, Any]:
    return read(at.layout.times(model, setting)) or {}


def curve(at: Workspace, model: str) -> list[dict[str, float]]:
    found = read(at.layout.pretrained(model) / CURVE)
    return [point for point in found["curve"] if "log_perplexity" in point] if found else []


def seen(at: Workspace, models: Sequence[str]) -> list[str]:
    """These models, and others trained in the same folder."""

    def scored(name: str) -> bool:
        return any(at.layout.scores(name, task).exists() for task in at.small.tasks)

    return [name for name in VARIANTS if name in models or curve(at, name) or scored(name)]


def comparison(at: Workspace, models: Sequence[str]) -> tuple[ReportTable, ...]:
    """Our table 1: perplexity, accuracy with intervals, time and memory; and what the names mean."""
    models, tasks = seen(at, models), at.small.tasks
    rows: list[tuple[Any, ...]] = []
    for model in models:
        learned = curve(at, model)
        words = [f"{point['log_perplexity']:.3f}" for point in (learned[:1] + learned[-1:] if learned else [])]
        scores = [interval(accuracy(at, model, task), name) for task in tasks for name in shown(task)]
        took = times(at, model)
        length = reads(model, at.small.length, at.small.short)
        speed = [took.get(name) for name in TIMES]
        memory = took.get("training_gib_several")
        ms = [f"{value:.2f}" if value else None for value in speed]
        spent = [gpu_seconds(at, model, at.layout.pretrained(model))]
        spent += [gpu_seconds(at, model, at.layout.tuned(model, task)) for task in tasks]
        steps = [read(at.layout.tuned(model, task) / CURVE) for task in tasks]
        taken = " ".join(f"{one['steps']:,}" for one in steps if one)
        told_scores = (ceiling(at, model), *scores, opened(at, model, tasks[0]), taken, *spent)
        rows.append((model, f"{length:,}", " → ".join(words), *told_scores, *ms, f"{memory:.2f}" if memory else None))
    several = f"batch {at.small.at_once}"
    columns = (
        "model", "reads", "log perplexity, before → after", "paragraph alone, f1",
        *(f"{task} {name}" for task in tasks for name in shown(task)), f"{tasks[0]}: answers opened, % by layer",
        "steps on tasks",
        "GPU s, pretraining", *(f"GPU s, {task}" for task in tasks),
        "forward ms, one", f"forward ms each, {several}", "the GPU busy",
        f"training ms each, {several}", "the GPU busy", f"training GiB, {several}",
    )  # fmt: skip
    told = tuple((model, VARIANTS[model].told) for model in models)
    return ReportTable("The same start and the same data", columns, tuple(rows)), ReportTable(
        "The models", ("model", "what"), told
    )


def by_time(at: Workspace, models: Sequence[str]) -> Picture:
    """Accuracy on the first task against the time of a training step."""
    task = at.small.tasks[0]
    labels = {model: VARIANTS[model].label or model for model in seen(at, models)}
    what = "Paragraphs hidden in" if task == HIDDEN else f"{task},"
    return against_time(at, task, metric(task), labels, what)


def against_time(
    at: Workspace, task: str, name: str, labels: dict[str, str], what: str, log_x: bool = False
) -> Picture:
    """A metric against the time of a training step. `labels`: the models that are shown, and their names there."""
    points = []
    for model, label in labels.items():
        found, took = accuracy(at, model, task), times(at, model)
        ms = took.get("training_gpu_ms_each") or took.get("training_ms_each")
        if found and ms:
            points.append(Point(label, ms, found[name], found.get(f"{name}_low"), found.get(f"{name}_high")))
    spent = f", {at.small.tune_seconds:g} GPU seconds of training" if at.small.tune_seconds else ""
    title = f"{what} {at.small.length:,} tokens{spent}"
    bars = "lowest to highest seed" if at.small.seeds > 1 else "95% over documents"
    told = f"Up and to the left is better. Bars: {bars}."
    return Picture(
        title, "GPU time of a training step, ms per sequence", percent(name), tuple(points), log_x, told=told
    )


def perplexities(at: Workspace, models: Sequence[str]) -> Picture:
    points = [
        Point(model, point["step"], point["log_perplexity"]) for model in seen(at, models) for point in curve(at, model)
    ]
    return Picture("Held-out masked words", "steps of pretraining", "log perplexity", tuple(points))


def frontier(at: Workspace, task: str, settings: Sequence[Setting]) -> tuple[ReportTable, Picture]:
    """Accuracy against time over settings: of a forward pass, or of training if only that was timed."""
    name = metric(task)
    rows: list[tuple[Any, ...]] = []
    points = []
    whose = ", the GPU busy" if at.small.device == "cuda" else ""
    what = "forward" if at.small.time_forward else "training"
    for setting in settings:
        found, took = accuracy(at, setting.model, task, setting.name), times(at, setting.model, setting.name)
        ms = took.get(f"{what}_gpu_ms_each" if whose else f"{what}_ms_each")
        rows.append((setting.model, setting.name, interval(found, name), f"{ms:.2f}" if ms else None))
        if found and ms:
            low, high = found.get(f"{name}_low"), found.get(f"{name}_high")
            points.append(Point(setting.model, ms, found[name], low, high, label=setting.name))
    table = ReportTable(
        f"{task}: {name} over settings", ("model", "setting", name, f"{what} ms each{whose}"), tuple(rows)
    )
    return table, Picture(task, f"{what} ms per sequence{whose}", percent(name), tuple(points), log_x=True)


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
    return table, Picture(task, "tokens read", percent(name), tuple(points), log_x=True)


def scale_of(small: Small) -> str:
    long = f"{small.batch} x {small.length} tokens"
    pretrained = f"{small.pretrain_seconds:g} GPU s" if small.pretrain_seconds else f"{small.pretrain_steps} more"
    tuned = f"{small.tune_seconds:g} GPU s" if small.tune_seconds else f"{small.tune_steps}"
    middle = (
        f"{small.answer_steps} of 64 paragraphs make the common reader"
        if small.reader
        else f"{pretrained} pretrain each model, {small.answer_steps} of 64 paragraphs teach it to answer"
    )
    return (
        f"{small.start_steps} steps of {long} make the common checkpoint ({small.prestart_steps} the pre-norm one), "
        f"{middle}, {tuned} teach each task; {small.examples} validation examples; {small.seeds} seeds; "
        f"{small.device}{', compiled' if small.compile else ''}. GPU s: steps times the time of one alone."
    )
