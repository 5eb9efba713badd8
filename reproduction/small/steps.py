"""The small scale as steps: the jobs of a table, their dependencies and estimated times."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reproduction.experiment import ProcessStep, Workspace, missing_packages
from reproduction.small.layout import CURVE, HIDDEN, OWN, START
from reproduction.small.pack import MODEL
from reproduction.small.settings import PARAGRAPHS, Small
from reproduction.small.variants import VARIANTS, reads

# Training ms per 4,096 tokens at MiniLM's size, compiled where that helps: estimates for planning on one H200.
GUESS = {"vcc": 1.2, "dense-512": 2.8, "dense": 5.2, "longformer": 2.6, "windows": 2.6, "bigbird": 17, "mra": 12}
SLOWER_CPU = 400  # how many times longer on two cores


@dataclass(frozen=True)
class Setting:
    """A model with other settings than its own."""

    model: str
    name: str
    options: dict[str, Any]


def hide(at: Workspace) -> ProcessStep:
    """No job needs it: one that comes before it does the same."""
    return job(at, "hide", {}, at.layout.hidden(), (), 0.01 + at.small.examples * at.small.length / 4e6)


def begin(at: Workspace, start: str = START) -> ProcessStep:
    steps = at.small.start_steps if start == START else at.small.prestart_steps
    what = "begin" if start == START else "prestart"
    took = minutes(at.small, "dense-512", steps * at.small.batch * at.small.length)
    return job(at, what, {}, at.layout.start(start) / CURVE, (), took)


def read(at: Workspace, start: str) -> ProcessStep:
    """The common reader."""
    needs = (at.layout.start(start) / CURVE,)
    return job(at, "read", {"start": start}, at.layout.reader(start) / CURVE, needs, on_paragraphs(at.small))


def pretrain(at: Workspace, model: str, repeat: int = 0) -> ProcessStep:
    steps, layout = VARIANTS[model].pretrain_steps(at.small.pretrain_steps), at.layout.repeated(repeat)
    needs = (at.layout.start(VARIANTS[model].start) / CURVE, *timed(at, model, at.small.pretrain_seconds))
    tokens = steps * at.small.batch * at.small.length
    took = (at.small.pretrain_seconds or 0) / 60 or minutes(at.small, VARIANTS[model].kind, tokens)
    return job(at, "pretrain", {"name": model, **seeded(repeat)}, layout.pretrained(model) / CURVE, needs, took)


def answer(at: Workspace, model: str, repeat: int = 0) -> ProcessStep:
    layout = at.layout.repeated(repeat)
    needs, took = (layout.pretrained(model) / CURVE,), on_paragraphs(at.small)
    return job(at, "answer", {"name": model, **seeded(repeat)}, layout.answering(model) / CURVE, needs, took)


def tune(
    at: Workspace,
    model: str,
    task: str,
    repeat: int = 0,
    setting: Setting | None = None,
    rate: float | None = None,
) -> ProcessStep:
    layout, name = at.layout.repeated(repeat).rated(rate), setting.name if setting else OWN
    before = layout.reader(VARIANTS[model].start) if at.small.reader else layout.answering(model)
    needs = (before / CURVE, *timed(at, model, at.small.tune_seconds, name))
    steps = VARIANTS[model].tune_steps(at.small.tune_steps)
    took = (at.small.tune_seconds or 0) / 60 or of_texts(at.small, model, steps)
    arguments = {"name": model, "task": task, **seeded(repeat)}
    if layout.rate:
        arguments |= {"rate": rate}
    if setting:
        arguments |= {"setting": name, "options": setting.options}
    return job(at, "tune", arguments, layout.scores(model, task, name), needs, took + answering(at, model))


def search(at: Workspace, model: str, task: str) -> list[ProcessStep]:
    """Learn a task with each rate and the first seed, choose one, and learn with that and the other seeds."""
    each = [tune(at, model, task, rate=rate) for rate in at.small.rates]
    first, given = at.layout.chosen(model, task), {"name": model, "task": task}
    choose = job(at, "choose", given, first, tuple(step.done for step in each), 0.2)
    found = [*each, choose]
    for repeat in range(1, at.small.seeds):
        alike, done = tune(at, model, task, repeat), at.layout.repeated(repeat).chosen(model, task)
        needs = (first, *alike.needs)
        found.append(job(at, "again", {**given, **seeded(repeat)}, done, needs, alike.minutes))
    return found


def timed(at: Workspace, model: str, seconds: float | None, setting: str = OWN) -> tuple[Path, ...]:
    """Steps that are counted in seconds need the time of one."""
    return () if seconds is None else (at.layout.times(model, setting),)


def seeded(repeat: int) -> dict[str, int]:
    return {"repeat": repeat} if repeat else {}


def learning(at: Workspace, models: Sequence[str]) -> list[ProcessStep]:
    """Everything before the tasks."""
    starts, repeats = list(dict.fromkeys(VARIANTS[model].start for model in models)), range(at.small.seeds)
    found = [begin(at, start) for start in starts]
    if at.small.reader:
        found += [read(at, start) for start in starts]
    if at.small.pretrain_seconds or at.small.tune_seconds:
        found += [warm(at, model) for model in to_warm(at, models)]
        found.append(clock(at, [Setting(model, OWN, {}) for model in models]))
    if at.small.reader:
        return found
    return found + [step(at, model, repeat) for repeat in repeats for step in (pretrain, answer) for model in models]


def score(at: Workspace, task: str, model: str, length: int) -> ProcessStep:
    """Score at another length."""
    file = at.layout.scores(model, task, OWN, length)
    given = {"name": model, "task": task, "length": length}
    return job(at, "score", given, file, (at.layout.scores(model, task),), answering(at, model))


def clock(at: Workspace, settings: Sequence[Setting]) -> ProcessStep:
    """Time the remaining models sequentially in one process, alone."""
    files = [at.layout.times(one.model, one.name) for one in settings]
    pairs = list(zip(settings, files, strict=True))
    left = [pair for pair in pairs if not pair[1].exists()] or pairs[-1:]
    each = [{"name": one.model, "setting": one.name, "options": one.options} for one, _ in left]
    needs = tuple(dict.fromkeys(at.layout.start(VARIANTS[one.model].start) / CURVE for one, _ in left))
    shown = ", ".join(f"{one.model} {one.name}" for one, _ in left)
    return job(at, "time", {"each": each}, left[-1][1], needs, 0.2 + 0.1 * len(left), alone=True, shown=shown)


def to_warm(at: Workspace, models: Sequence[str]) -> list[str]:
    """The models to compile ahead: those that are not timed yet, where compiling side by side is faster."""
    if not (at.small.compile and at.small.device == "cuda" and at.small.together > 1):
        return []
    return [model for model in models if not at.layout.times(model).exists()]


def warm(at: Workspace, model: str) -> ProcessStep:
    """Compile beside other jobs what is timed alone. No job needs it; the lonely one waits for all that can run."""
    needs = (at.layout.start(VARIANTS[model].start) / CURVE,)
    return job(at, "warm", {"name": model}, at.layout.compiled(model), needs, 0.4)


def comparison(at: Workspace, models: Sequence[str]) -> list[ProcessStep]:
    """Everything from the common checkpoint to scores and times."""
    repeats, tasks = range(at.small.seeds), at.small.tasks
    if at.small.rates:
        tunings = [step for task in tasks for model in models for step in search(at, model, task)]
    else:
        tunings = [tune(at, model, task, repeat) for repeat in repeats for task in tasks for model in models]
    hidden = [hide(at)] if HIDDEN in tasks else []
    return [*hidden, *learning(at, models), *tunings, clock(at, [Setting(model, OWN, {}) for model in models])]


def job(
    at: Workspace,
    what: str,
    arguments: dict[str, Any],
    done: Path,
    needs: tuple[Path, ...],
    took: float,
    alone: bool = False,
    shown: str | None = None,
    module: str = "reproduction.small.jobs",
    lacks: tuple[str, ...] | None = None,
) -> ProcessStep:
    shown = shown or " ".join(str(value) for value in arguments.values() if value is not None)
    settings = json.dumps(asdict(at.small))
    command = (sys.executable, "-m", module, str(at.packed), str(at.out), settings, what)
    lacks = missing(at) if lacks is None else lacks
    return ProcessStep(
        f"small {what} {shown}".rstrip(), (*command, json.dumps(arguments)), done, took, needs, alone, lacks
    )


def missing(
    at: Workspace, folder: str = MODEL, option: str = "--model", packages: tuple[str, ...] = ()
) -> tuple[str, ...]:
    lacks = list(missing_packages("rich", *packages))
    if not (at.packed / folder).is_dir():
        lacks.append(f"{at.packed}: packed weights and data; made by --pack true with --data and {option}")
    if at.small.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            lacks.append("a GPU (--device cpu for a tiny run)")
    return tuple(lacks)


def minutes(small: Small, kind: str, tokens: int) -> float:
    """An estimate of total time: concurrent jobs share the device."""
    slower = SLOWER_CPU if small.device == "cpu" else 1
    return GUESS[kind] * tokens / 4096 * slower / 60_000 + 0.3


def on_paragraphs(small: Small) -> float:
    return minutes(small, "dense-512", small.answer_steps * PARAGRAPHS * small.short)


def of_texts(small: Small, model: str, steps: int) -> float:
    """Steps on texts of which a model reads as much as it can."""
    return minutes(small, VARIANTS[model].kind, steps * small.batch * reads(model, small.length, small.short))


def answering(at: Workspace, model: str) -> float:
    return of_texts(at.small, model, at.small.examples // (3 * at.small.batch) + 1)
