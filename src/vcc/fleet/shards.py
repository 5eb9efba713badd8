"""The folder of a run's finished work: a manifest, and shards that are complete or absent.

A shard holds the rows of some documents; its metadata lists them with the stamps of their files. If two shards hold the
same document, the later one counts.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq

from vcc.errors import Failure, UsageError
from vcc.files import one_at_a_time, write_whole
from vcc.fleet.job import Done, Job
from vcc.fleet.sources import Item
from vcc.fleet.table import Row, parquet_bytes

MANIFEST, LOCK, SHARDS = "manifest.json", "lock", "shards"
KEY = b"documents"


@dataclass(frozen=True)
class Kept:
    """Where a document's rows are, and whether they are an error."""

    stamp: str
    shard: str
    kind: str | None


@dataclass(frozen=True)
class Shards:
    """The shards of one job in one folder. `numbers` are those of the next shards in an opened folder."""

    folder: Path
    numbers: Iterator[int] = count(1)

    @contextmanager
    def opened(self, job: Job) -> Iterator["Shards"]:
        """Open the folder for one run at a time, of its own job."""
        (self.folder / SHARDS).mkdir(parents=True, exist_ok=True)
        with one_at_a_time(self.folder / LOCK, Failure(f"{self.folder} is in use by another run")):
            self._check(job)
            last = max((int(path.stem) for path in self.paths()), default=0)
            yield replace(self, numbers=count(last + 1))

    def _check(self, job: Job) -> None:
        """Check that the manifest is this job's; the first run writes it."""
        path, settings = self.folder / MANIFEST, json.loads(json.dumps(job.settings()))
        if not path.exists():
            for left in self.folder.glob(f"{SHARDS}/*.parquet"):
                raise UsageError(f"{self.folder}: shards such as {left.name}, but no {MANIFEST}: use another --out")
            write_whole(path, json.dumps({"fingerprint": job.fingerprint, "settings": settings}, indent=1))
            return
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
            kept, fingerprint = dict(before["settings"]), str(before["fingerprint"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is damaged ({error}): use another --out") from error
        if fingerprint != job.fingerprint:
            other = [name for name in {**settings, **kept} if settings.get(name) != kept.get(name)]
            raise UsageError(
                f"{self.folder} holds the results of another job (other {', '.join(other)}): "
                "use another --out, or remove the folder"
            )

    def paths(self) -> list[Path]:
        return sorted((self.folder / SHARDS).glob("*.parquet"))

    def kept(self) -> dict[str, Kept]:
        """The stored documents by name. Half-written files of a killed run are removed."""
        for left in (self.folder / SHARDS).glob(".writing-*"):
            left.unlink(missing_ok=True)
        found: dict[str, Kept] = {}
        for path in self.paths():
            about = (pq.read_schema(path).metadata or {})[KEY]
            found |= {name: Kept(stamp, path.name, kind) for name, stamp, kind in json.loads(about)}
        return found

    def commit(self, done: Iterable[Done]) -> None:
        """Store the rows of some documents, all or none."""
        done = sorted(done, key=lambda one: one.item.name)
        about = json.dumps([(one.item.name, one.item.stamp, one.kind) for one in done])
        data = parquet_bytes([row for one in done for row in one.rows], {KEY.decode(): about})
        write_whole(self.folder / SHARDS / f"{next(self.numbers):08d}.parquet", data)

    def rows(self, items: Iterable[Item]) -> list[Row]:
        """The stored rows of these documents, sorted by name."""
        kept = self.kept()
        wanted = {item.name: kept[item.name].shard for item in items if item.name in kept}
        found: dict[str, list[Row]] = {name: [] for name in sorted(wanted)}
        for shard in sorted(set(wanted.values())):
            for row in pq.read_table(self.folder / SHARDS / shard).to_pylist():
                if wanted.get(row["document"]) == shard:
                    found[row["document"]].append(row)
        return [row for rows in found.values() for row in rows]

    def size(self) -> int:
        return sum(os.path.getsize(path) for path in self.paths())


def missing(items: Iterable[Item], kept: dict[str, Kept], retry: bool) -> list[Item]:
    """Documents that are missing or have changed; with `retry`, also those that failed."""

    def is_kept(item: Item) -> bool:
        found = kept.get(item.name)
        return found is not None and found.stamp == item.stamp and not (retry and found.kind is not None)

    return [item for item in items if not is_kept(item)]
