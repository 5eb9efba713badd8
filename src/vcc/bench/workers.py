"""Cells in child processes: some are prepared at once, because compiling takes long; each is measured alone."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import transformers

from vcc.bench.measure import OUT_OF_MEMORY, BenchCell
from vcc.bench.settings import BenchSettings
from vcc.bench.stages import Profile, measure_and_profile

READY = "ready"


class CellKey(NamedTuple):
    """Which cell is wanted."""

    model: str
    length: int
    mode: str


Outcome = tuple[BenchCell, Profile | str | None]
Work = Callable[[str, int, str, BenchSettings, Callable[[], None]], Outcome]


def wave(jobs: Sequence[CellKey], settings: BenchSettings, work: Work = measure_and_profile) -> Iterator[Outcome]:
    """Prepare all jobs at once and measure one after the other, the rest idle; whatever happens, one outcome each.

    What did not fit beside the others is tried again alone, at the end.
    """
    settings, unfit = replace(settings, workers=len(jobs)), []
    workers = []
    try:
        for job in jobs:
            workers.append(start(job, settings, work))
        limit = time.monotonic() + settings.patience
        heard = [worker.hear(limit, "ready") for worker in workers]
        for worker, outcome in zip(workers, heard, strict=True):
            if outcome == READY:
                with suppress(OSError):  # it died waiting, as is heard next
                    worker.pipe.send("go")
                outcome = worker.hear(time.monotonic() + settings.patience, "measured")
            if outcome[0].outcome == OUT_OF_MEMORY and len(jobs) > 1:
                unfit.append(worker.job)
            else:
                yield outcome
    finally:
        for worker in workers:
            worker.end()
    for job in unfit:
        yield from wave([job], settings, work)


@dataclass(frozen=True)
class CellWorker:
    """A child process and the line to it."""

    job: CellKey
    process: Any
    pipe: Connection

    def hear(self, limit: float, state: str) -> Any:
        """READY, or the outcome; with that, or without a word by the time `limit`, it is ended and its memory free."""
        lost = f"failed: not {state} in time"
        try:
            if self.pipe.poll(max(0.0, limit - time.monotonic())):
                said = self.pipe.recv()
                if said != READY:
                    self.end()
                return said
        except (EOFError, OSError):
            self.process.join(10)  # it is dying; soon its exit code is known
            code = self.process.exitcode
            end = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"
            lost = f"failed: its process {end} before it was {state}"
        self.end()
        return BenchCell(*self.job, lost), None

    def end(self) -> None:
        """It has said all it has to say: ending as a program does would only take time and GPU memory from others."""
        self.process.kill()
        self.process.join(60)
        self.pipe.close()


def start(job: CellKey, settings: BenchSettings, work: Work) -> CellWorker:
    context = get_context("spawn")  # CUDA does not survive a fork
    pipe, far_end = context.Pipe()
    process = context.Process(target=child, args=(far_end, job, settings, torch.get_num_threads(), work))
    cores = max(1, (os.cpu_count() or 1) // settings.workers)
    with patch.dict(os.environ, {"TORCHINDUCTOR_COMPILE_THREADS": str(cores)}):
        process.start()
    far_end.close()  # the child has it; with its end, the pipe ends
    return CellWorker(job, process, pipe)


def child(pipe: Connection, job: CellKey, settings: BenchSettings, threads: int, work: Work) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is the parent's to handle
    Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()

    def ready() -> None:
        if settings.device == "cuda":
            torch.cuda.empty_cache()  # for the others; the first run that is measured takes it back and does not count
        pipe.send(READY)
        pipe.recv()

    pipe.send(work(*job, settings, ready))


def end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
