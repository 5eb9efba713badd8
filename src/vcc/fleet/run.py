"""A run over many documents: finished ones are skipped, results are stored as they come, the table comes last."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vcc.errors import Failure
from vcc.fleet.engines import Chunk, in_processes, in_this_process, on_ray
from vcc.fleet.job import Done, Job
from vcc.fleet.shards import Shards, missing
from vcc.fleet.sources import Item
from vcc.fleet.table import write_table

CHUNK_ITEMS, CHUNK_BYTES = 16, 2**20  # a shard's worth: small, because what is in flight is lost with the driver
ROUNDS = 3  # attempts to keep what is done
SAMPLE = 8  # documents that a dry run reads


@dataclass(frozen=True)
class Executor:
    """Where the work runs: on a Ray cluster, in `workers` processes, or in this process if `workers` is 0.

    This process uses one thread, for results bit-identical to those of workers, unless `one_thread` is false;
    `starting` is called before each of its documents.
    """

    workers: int | None = 0
    ray: str | None = None
    one_thread: bool = True
    starting: Callable[[Item], None] = lambda item: None

    def __call__(self, job: Job, chunks: Sequence[Chunk]) -> Iterator[list[Done]]:
        if self.ray is not None:
            return on_ray(job, chunks, self.workers, self.ray)
        if self.workers:
            return in_processes(job, chunks, self.workers)
        return in_this_process(job, chunks, self.one_thread, self.starting)


@dataclass
class Tally:
    """The progress of a run."""

    items: int  # to do in this run
    size: int  # bytes of them
    skipped: int = 0  # done by an earlier run
    documents: int = 0
    done_size: int = 0
    tokens: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    start: float = field(default_factory=time.perf_counter)

    def add(self, done: Sequence[Done]) -> None:
        self.documents += len(done)
        self.done_size += sum(one.item.size for one in done)
        self.tokens += sum(one.tokens for one in done)
        self.errors.update(one.kind for one in done if one.kind is not None)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / max(self.seconds, 1e-9)

    @property
    def left(self) -> float | None:
        """Seconds left, estimated from the remaining bytes; None before the first document."""
        return self.seconds * (self.size - self.done_size) / self.done_size if self.done_size else None


Report = Callable[[Tally], None]


def run(
    job: Job,
    items: Sequence[Item],
    out: Path,
    executor: Executor = Executor(),  # noqa: B008  a frozen value
    retry: bool = False,
    report: Report = lambda tally: None,
) -> Tally:
    """Process the missing `items` and write the table of all. Finished work is kept in the folder OUT.work."""
    with Shards(work_folder(out)).opened(job) as shards:
        todo = missing(items, shards.kept(), retry)
        tally = Tally(len(todo), sum(item.size for item in todo), len(items) - len(todo))
        report(tally)
        for _ in range(ROUNDS):
            if not todo:
                break
            for done in executor(job, chunks_of(todo)):
                shards.commit(done)
                tally.add(done)
                report(tally)
            todo = missing(items, shards.kept(), retry=False)  # what was damaged meanwhile
        if todo:
            raise Failure(
                f"{len(todo)} documents are lost as often as they are kept in {shards.folder}: check its disk"
            )
        write_table(out, shards.rows(items), job.questions)
    return tally


def work_folder(out: Path) -> Path:
    return out.with_name(out.name + ".work")


def chunks_of(items: Sequence[Item]) -> list[list[Item]]:
    """Chunks of documents of similar length, longest first: short ones finish last."""
    chunks: list[list[Item]] = []
    size = 0
    for item in sorted(items, key=lambda item: (-item.size, item.name)):
        if not chunks or len(chunks[-1]) == CHUNK_ITEMS or size + item.size > CHUNK_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(item)
        size += item.size
    return chunks


@dataclass(frozen=True)
class Estimate:
    """The estimated cost of a run."""

    documents: int
    size: int  # bytes
    tried: int
    tokens: int
    seconds: float  # of one worker
    disk: int  # bytes of the table, or of the indexes


def estimate(job: Job, items: Sequence[Item], disk: Callable[[Sequence[Done]], int]) -> Estimate:
    """Estimate from a few documents of all sizes, by bytes; `disk` measures the output of those."""
    ordered = sorted(items, key=lambda item: (item.size, item.name))
    step = max(len(ordered) // SAMPLE, 1)
    sample = ordered[step // 2 :: step][:SAMPLE]
    (done,) = in_this_process(job, [sample])
    size = sum(item.size for item in items)
    share = size / max(sum(item.size for item in sample), 1)
    return Estimate(
        len(items),
        size,
        len(sample),
        round(share * sum(one.tokens for one in done)),
        share * sum(one.seconds for one in done),
        round(share * disk(done)),
    )
