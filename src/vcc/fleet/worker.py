"""A worker: a process with the model, and a supervisor that outlives it.

Both run in a thread of the driver or in a Ray actor. A document that kills the process is retried, then is an error
row: nothing above the supervisor fails because of a document.
"""

import json
import pickle
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

from vcc.child_process import READY, ChildProcess, answer_to, started
from vcc.errors import Failure
from vcc.fleet.job import Doing, Done, Job, failed, threads
from vcc.fleet.sources import Item

ATTEMPTS = 3  # a process may be killed by accident, even twice
STARTING = 600  # seconds to import torch and load a model, from a slow disk on a busy machine


class Worker:
    """Processes documents sequentially in a separate process."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.child: ChildProcess | None = None

    def do(self, items: Sequence[Item]) -> list[Done]:
        return [self.do_one(item) for item in items]

    def do_one(self, item: Item) -> Done:
        for _ in range(ATTEMPTS):
            child = self.started()
            start = time.perf_counter()
            try:
                child.line.send_bytes(json.dumps(asdict(item)).encode())
                rows = json.loads(child.line.recv_bytes())
            except (EOFError, OSError):
                self.end()
                continue
            return Done(item, rows, time.perf_counter() - start, rows[0].get("tokens") or 0)
        rule = f"ended its worker process {ATTEMPTS} times, perhaps for lack of memory"
        return Done(item, [failed(item, "worker", rule)])

    def started(self) -> ChildProcess:
        """The process, with its model loaded."""
        if self.child is None:
            try:
                self.child = started(self.new_child)
            except Failure as error:
                model = self.job.model or "shipped"
                raise Failure(f"a worker with model {model} could not be started; see its output above") from error
        return self.child

    def new_child(self) -> ChildProcess:
        child = ChildProcess("vcc.fleet.worker", "serve", STARTING, stderr=None)
        with suppress(OSError):  # it is already gone, which `wait` will report
            child.line.send_bytes(pickle.dumps(self.job))
        return child

    def finish(self) -> None:
        """End the process."""
        if self.child is not None:
            self.child.finish()
            self.child = None

    def end(self) -> None:
        if self.child is not None:
            self.child.end()
            self.child = None


def serve(number: int) -> None:
    """The process: receive a job, then documents, and send rows until the supervisor is gone."""
    with answer_to(number) as line:
        doing = Doing(pickle.loads(line.recv_bytes()))
        line.send_bytes(READY)
        with threads(1), suppress(EOFError, BrokenPipeError, ConnectionResetError):
            while True:
                rows = doing(Item(**json.loads(line.recv_bytes())))
                line.send_bytes(json.dumps(rows).encode())
