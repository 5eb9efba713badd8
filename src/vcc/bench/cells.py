"""The cells of a run, sequentially in this process or in waves of workers."""

from collections.abc import Generator

from vcc.bench.measure import BenchCell
from vcc.bench.settings import BenchSettings
from vcc.bench.stages import measure_and_profile
from vcc.bench.workers import CellKey, Outcome, wave


def outcomes(settings: BenchSettings) -> Generator[Outcome, None, None]:
    """The result of every cell: for each length in the given order, all models in both modes."""
    modes = ("forward", "training") if settings.training else ("forward",)
    jobs = [CellKey(model, length, mode) for length in settings.lengths for model in settings.models for mode in modes]
    done: list[BenchCell] = []
    while jobs:
        now: list[CellKey] = []
        # With a limit, a wave has one length: its time decides whether a longer one is run.
        while jobs and len(now) < settings.workers:
            if settings.limit is not None and now and now[0].length != jobs[0].length:
                break
            job = jobs.pop(0)
            if placeholder := skipped(job, done, settings.limit):
                yield placeholder, None
            else:
                now.append(job)
        here = (measure_and_profile(*job, settings) for job in now)
        for outcome in wave(now, settings) if settings.workers > 1 else here:
            done.append(outcome[0])
            yield outcome


def skipped(job: CellKey, done: list[BenchCell], limit: float | None) -> BenchCell | None:
    """A skipped cell, if shorter ones of the same model predict a time above the limit."""
    before = [cell for cell in done if (cell.model, cell.mode) == (job.model, job.mode) and cell.length < job.length]
    seconds = max(((cell.ms or 0) / 1e3 * (job.length / cell.length) ** 2 for cell in before), default=0.0)
    return None if limit is None or seconds <= limit else BenchCell(*job, f"skipped: {seconds:.0f} s predicted")
