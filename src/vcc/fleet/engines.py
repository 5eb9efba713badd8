"""Engines: this process, worker processes, or a Ray cluster."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from vcc.errors import UsageError
from vcc.fleet.job import Doing, Done, Job, threads
from vcc.fleet.sources import Item
from vcc.fleet.worker import Worker

Chunk = Sequence[Item]
INSTALL = "pip install 'vcc-transformers[ray]'"


def in_this_process(
    job: Job, chunks: Sequence[Chunk], one_thread: bool = True, starting: Callable[[Item], None] = lambda item: None
) -> Iterator[list[Done]]:
    """A plain loop; the others must give the same results."""
    doing = Doing(job)
    for chunk in chunks:
        done = []
        with threads(1) if one_thread else nullcontext():
            for item in chunk:
                starting(item)
                start = time.perf_counter()
                rows = doing(item)
                done.append(Done(item, rows, time.perf_counter() - start, rows[0].get("tokens") or 0))
        yield done


def in_processes(job: Job, chunks: Sequence[Chunk], workers: int) -> Iterator[list[Done]]:
    """One thread per process waits for its results."""
    waiting: queue.SimpleQueue[Chunk] = queue.SimpleQueue()
    finished: queue.SimpleQueue[list[Done] | BaseException] = queue.SimpleQueue()
    for chunk in chunks:
        waiting.put(chunk)
    crew = [Worker(job) for _ in range(min(workers, len(chunks)))]
    stopped = threading.Event()

    def work(worker: Worker) -> None:
        try:
            while not stopped.is_set():
                finished.put(worker.do(waiting.get_nowait()))
        except queue.Empty:
            worker.finish()
        except BaseException as error:
            finished.put(error)

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in crew]
    for thread in threads:
        thread.start()
    try:
        for _ in chunks:
            done = finished.get()
            if isinstance(done, BaseException):
                raise done
            yield done
        for thread in threads:
            thread.join()
    finally:
        stopped.set()
        for worker in crew:
            worker.end()


class Actor:
    """The Ray actor: the supervisor of one worker."""

    def __init__(self, job: Job) -> None:
        self.worker = Worker(job)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"done": [self.worker.do(chunk) for chunk in batch["chunk"]]}


def on_ray(job: Job, chunks: Sequence[Chunk], workers: int | None, address: str) -> Iterator[list[Done]]:
    """With Ray Data, which retries the chunks of lost nodes; documents cannot fail an actor.

    By default, as many workers as the cluster has GPUs, or else CPUs.
    """
    try:
        import ray
        from ray.data import ActorPoolStrategy, DataContext
    except ImportError as error:
        raise UsageError(f"--ray needs Ray: {INSTALL}") from error
    if not ray.is_initialized():
        ray.init(address=None if address == "local" else address, log_to_driver=False)
    there = ray.cluster_resources()
    gpus = int(there.get("GPU", 0))
    most = workers or gpus or int(there.get("CPU", 1))
    number = min(most, len(chunks))
    context = DataContext.get_current()
    context.enable_progress_bars = False
    blocks = ray.data.from_items([{"chunk": list(chunk)} for chunk in chunks], override_num_blocks=len(chunks))
    done = blocks.map_batches(
        Actor,
        fn_constructor_args=(job,),
        batch_size=1,
        compute=ActorPoolStrategy(min_size=1 if gpus else number, max_size=number),
        # Half of a worker's use: the workers of a lost node must fit on the others, or Ray waits forever.
        num_cpus=0 if gpus else 0.5,
        num_gpus=1 if gpus else 0,
        scheduling_strategy="SPREAD",
    )
    for row in done.iter_rows():
        yield row["done"]
