"""The encoder-decoders at small scale as steps: the jobs of a table, their dependencies and estimated times."""

from collections.abc import Sequence

from reproduction.experiment import ProcessStep, Workspace
from reproduction.small.layout import CURVE, T5
from reproduction.small.steps import SLOWER_CPU, job, missing, seeded, timed, to_warm
from reproduction.small.writers import WRITERS

MODULE = "reproduction.small.write_jobs"
ROW = 0.5  # training ms of a short row at the small T5's size: an estimate for planning on one H200
SEQUENCE = {"t5": 8.0, "vcc": 2.5, "longt5": 8.0}  # likewise of 4,096 tokens
ANSWERING = 0.5  # minutes to write and score the summaries


def comparison(at: Workspace, models: Sequence[str], tasks: Sequence[str]) -> list[ProcessStep]:
    """Everything from random weights to scores and times."""
    repeats = range(at.small.seeds)
    tunings = [tune(at, model, task, repeat) for repeat in repeats for task in tasks for model in models]
    return [begin(at), *(warm(at, model) for model in to_warm(at, models)), clock(at, models), *tunings]


def begin(at: Workspace) -> ProcessStep:
    took = at.small.t5_seconds or at.small.t5_steps * at.small.t5_batch * ROW / 1000 * slower(at)
    done = at.layout.start(T5) / CURVE
    return job(at, "begin", {}, done, (), took / 60, shown="T5", module=MODULE, lacks=lacks(at))


def warm(at: Workspace, model: str) -> ProcessStep:
    """Compile beside other jobs what is timed alone."""
    needs = (at.layout.start(T5) / CURVE,)
    return job(at, "warm", {"name": model}, at.layout.compiled(model), needs, 1.2, module=MODULE, lacks=lacks(at))


def clock(at: Workspace, models: Sequence[str]) -> ProcessStep:
    """Time the remaining models sequentially in one process, alone."""
    left = [model for model in models if not at.layout.times(model).exists()] or list(models[-1:])
    given, needs = {"each": [{"name": model} for model in left]}, (at.layout.start(T5) / CURVE,)
    return job(
        at, "time", given, at.layout.times(left[-1]), needs, 0.2 + 0.3 * len(left), alone=True,
        shown=", ".join(left), module=MODULE, lacks=lacks(at),
    )  # fmt: skip


def tune(at: Workspace, model: str, task: str, repeat: int = 0) -> ProcessStep:
    layout, small = at.layout.repeated(repeat), WRITERS[model].settings(at.small)
    each = SEQUENCE[WRITERS[model].kind] * WRITERS[model].reads(small) / 4096 * slower(at)
    seconds = small.tune_seconds or small.tune_steps * small.batch * each / 1000
    needs = (at.layout.start(T5) / CURVE, *timed(at, model, small.tune_seconds))
    arguments = {"name": model, "task": task, **seeded(repeat)}
    return job(
        at, "tune", arguments, layout.scores(model, task), needs, seconds / 60 + ANSWERING, module=MODULE,
        lacks=lacks(at),
    )  # fmt: skip


def slower(at: Workspace) -> float:
    return SLOWER_CPU if at.small.device == "cpu" else 1.0


def lacks(at: Workspace) -> tuple[str, ...]:
    return missing(at, T5, "--t5", ("rouge_score",))
