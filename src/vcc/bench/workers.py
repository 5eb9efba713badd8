"""Cells in child processes: prepared concurrently, because compiling takes long, and measured alone."""

import os
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import torch
import transformers

from vcc.bench.measure import OUT_OF_MEMORY, BenchCell
from vcc.bench.settings import BenchSettings
from vcc.bench.stages import Profile, measure_and_profile
from vcc.child_process import READY, ChildProcess, answer_to, heard_from


class CellKey(NamedTuple):
    """The cell to measure."""

    model: str
    length: int
    mode: str


Outcome = tuple[BenchCell, Profile | str | None]
Work = Callable[[str, int, str, BenchSettings, Callable[[], None]], Outcome]


def wave(jobs: Sequence[CellKey], settings: BenchSettings, work: Work = measure_and_profile) -> Iterator[Outcome]:
    """Prepare all jobs concurrently and measure them sequentially while the others idle; each gets one outcome.

    A job that did not fit beside the others is retried alone at the end.
    """
    settings, unfit = replace(settings, workers=len(jobs)), []
    workers: list[CellWorker] = []
    try:
        for job in jobs:
            workers.append(CellWorker(job, settings, work))
        limit = time.monotonic() + settings.patience
        heard = [worker.hear(limit, "ready") for worker in workers]
        for worker, outcome in zip(workers, heard, strict=True):
            if outcome is None:
                with suppress(OSError):  # it died while waiting, which is reported next
                    worker.line.send_bytes(b"go")
                outcome = worker.hear(time.monotonic() + settings.patience, "measured")
            assert outcome is not None, "a worker says READY once"
            if outcome[0].outcome == OUT_OF_MEMORY and len(jobs) > 1:
                unfit.append(worker.job)
            else:
                yield outcome
    finally:
        for worker in workers:
            worker.end()
    for job in unfit:
        yield from wave([job], settings, work)


class CellWorker(ChildProcess):
    """A process that prepares a cell, waits for its turn to measure it, and returns the result."""

    def __init__(self, job: CellKey, settings: BenchSettings, work: Work) -> None:
        cores = max(1, (os.cpu_count() or 1) // settings.workers)
        threads = {"TORCHINDUCTOR_COMPILE_THREADS": str(cores)}
        super().__init__(__name__, "serve", settings.patience, stdout=None, stderr=None, environment=threads)
        self.job = job
        with suppress(OSError):  # it is already gone, which is reported next
            self.line.send_bytes(pickle.dumps((job, settings, torch.get_num_threads(), work)))

    def hear(self, limit: float, state: str) -> Outcome | None:
        """The outcome, or None for READY. After an outcome, or at the time `limit`, the process is killed to free its
        memory: a regular exit would cost time and GPU memory."""
        lost = f"failed: not {state} in time"
        try:
            if self.line.poll(max(0.0, limit - time.monotonic())):
                said = self.line.recv_bytes()
                if said == READY:
                    return None
                self.end()
                return pickle.loads(said)
        except (EOFError, OSError):
            lost = f"failed: its process {self.how_it_ended()} before it was {state}"
        self.end()
        return BenchCell(*self.job, lost), None


def serve(number: int) -> None:
    """The process: receive a job, send READY and, when the parent says so, measure and send the outcome."""
    line = answer_to(number)
    heard = heard_from(line)
    job, settings, threads, work = pickle.loads(heard.get())
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()

    def ready() -> None:
        if settings.device == "cuda":
            torch.cuda.empty_cache()  # for the others; the first measured run regains it and is not counted
        line.send_bytes(READY)
        heard.get()

    line.send_bytes(pickle.dumps(work(*job, settings, ready)))
