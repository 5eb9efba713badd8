"""Shared by the commands on many documents: options, progress and summary."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn

from vcc.commands.shared.documents import ReadLimits, remarks, wrote
from vcc.errors import Failure, UsageError
from vcc.printable import printable

if TYPE_CHECKING:  # they import pyarrow and fsspec, which the commands on one document do not need
    from vcc.documents.review_table import Question, ReviewTable
    from vcc.fleet.job import Job
    from vcc.fleet.run import Estimate, Tally
    from vcc.fleet.sources import Item

EVERY = 30  # seconds between progress lines without a terminal
GLOBS = "*?["


@dataclass(frozen=True)
class FleetOptions:
    """Many documents. On this machine or a cluster; --out is the table, OUT.work holds finished work for resuming."""

    workers: Annotated[int | None, "number of processes (default: one per GPU, else one per CPU)"] = None
    ray: Annotated[str | None, "use a Ray cluster: its address, auto for a running one, or local"] = None
    retry: Annotated[bool, "retry documents that failed in an earlier run"] = False
    dry_run: Annotated[bool, "try a few documents and estimate the total time"] = False
    column: Annotated[str, "text column of .parquet and .jsonl files, where each row is a document"] = "text"

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers is {self.workers}: it must be at least 1")

    @property
    def named(self) -> bool:
        """Whether any of these options was given."""
        return self != FleetOptions()

    def wanted(self, files: Sequence[str], out: Path | None) -> bool:
        """Whether the options, the sources or the output need a fleet."""
        table = out is not None and out.suffix.lower() == ".parquet"
        return self.named or table or any(map(is_collection, files))


NO_FLEET = FleetOptions()


def is_collection(source: str) -> bool:
    """Whether only a fleet can read this: a list, a pattern, a table of texts, or a remote path."""
    pattern = any(sign in source for sign in GLOBS) and not Path(source).exists()
    return source.startswith("@") or pattern or "://" in source or source.lower().endswith((".parquet", ".jsonl"))


def job_of(
    questions: "Sequence[Question]",
    top: int | None,
    threshold: float | None,
    model: str | None,
    reading: ReadLimits,
    store: str = "",
    thorough: bool = False,
) -> "Job":
    """A job that asks every document the questions."""
    try:
        from vcc.fleet.job import Job
    except ImportError as error:
        raise UsageError(f"many documents need {error.name}: pip install 'vcc-transformers[documents]'") from error
    limits, memory = reading.limits, reading.memory_bytes
    return Job(
        "ask", model, tuple(questions), top, threshold, store, limits, reading.seconds, memory, thorough=thorough
    )


def run_fleet(job: "Job", files: Sequence[str], out: Path | None, fleet: FleetOptions) -> None:
    """Run the job on all documents and print a summary."""
    from vcc.fleet.run import Executor, estimate, run
    from vcc.fleet.sources import find_items
    from vcc.fleet.table import check_output, parquet_bytes

    if out is None:
        raise UsageError("--out is missing: many documents need a table, .parquet, .csv or .xlsx")
    check_output(out)
    listing = find_items(files, fleet.column, job.limits)
    print_skipped(listing.skipped)
    workers = fleet.workers or (None if fleet.ray else default_workers())
    if fleet.dry_run:
        told = estimate(job, listing.items, lambda done: len(parquet_bytes(row for one in done for row in one.rows)))
        remarks.print(plan(told, workers), markup=False)
        return
    with shown_progress() as report:
        tally = run(job, listing.items, out, Executor(workers, fleet.ray), fleet.retry, report)
    wrote(out)
    remarks.print(summary(tally), markup=False)
    if tally.documents and tally.documents == tally.errors.total():
        raise Failure("no document could be read")


def print_skipped(names: Sequence[str]) -> None:
    for name in names[:10]:
        remarks.print(f"skipped {printable(name)}", markup=False, style="yellow")
    if len(names) > 10:
        remarks.print(f"skipped {len(names) - 10:,} more", style="yellow")


def review_here(job: "Job", items: "Sequence[Item]") -> "ReviewTable":
    """Review documents in this process with all its threads; nothing of the run is kept."""
    from vcc.fleet.run import Executor, run, work_folder
    from vcc.fleet.shards import Shards
    from vcc.fleet.table import as_review

    numbers = count(1)

    def starting(item: "Item") -> None:
        remarks.print(f"{next(numbers)} of {len(items)}: {printable(item.name)}", markup=False, style="dim")

    with TemporaryDirectory(prefix="vcc-") as folder:
        out = Path(folder) / "review.parquet"
        run(job, items, out, Executor(0, one_thread=False, starting=starting))
        table = as_review(Shards(work_folder(out)).rows(items), job.questions)
    order = {item.name: number for number, item in enumerate(items)}
    return replace(table, rows=tuple(sorted(table.rows, key=lambda row: order[row.document])))


def default_workers() -> int:
    """One worker per GPU; without GPUs, one per CPU."""
    import torch

    return torch.cuda.device_count() or os.cpu_count() or 1


def plan(told: "Estimate", workers: int | None) -> str:
    each = f"{duration(told.seconds / workers)} with {workers} workers" if workers else ""
    return (
        f"{told.documents:,} documents, {decimal(told.size)}, about {told.tokens:,} tokens: "
        f"{duration(told.seconds)} of work{', ' * bool(each)}{each}; the table takes {decimal(told.disk)} "
        f"(estimated from {told.tried} documents)"
    )


def summary(tally: "Tally") -> str:
    errors = ", ".join(f"{number:,} {kind}" for kind, number in sorted(tally.errors.items()))
    before = f", {tally.skipped:,} done before" if tally.skipped else ""
    return (
        f"{tally.documents:,} documents in {duration(tally.seconds)}{before}; {tally.tokens:,} tokens, "
        f"{tally.speed:,.0f} a second; {tally.errors.total():,} errors{f' ({errors})' if errors else ''}"
    )


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def shown_progress() -> Iterator[Callable[["Tally"], None]]:
    """A progress bar on a terminal, a line every 30 seconds elsewhere."""
    said = time.monotonic()

    def state(tally: "Tally") -> str:
        left = "" if tally.left is None else f", {duration(tally.left)} left"
        done = f"{tally.documents:,} of {tally.items:,} documents"
        return f"{done}, {tally.speed:,.0f} tokens/s, {tally.errors.total():,} errors{left}"

    columns = (BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=remarks, transient=True, disable=not remarks.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def report(tally: "Tally") -> None:
            nonlocal said
            bar.update(task, total=tally.size, completed=tally.done_size, description=state(tally))
            if not remarks.is_terminal and time.monotonic() - said > EVERY:
                said = time.monotonic()
                print(state(tally), file=sys.stderr, flush=True)

        yield report
