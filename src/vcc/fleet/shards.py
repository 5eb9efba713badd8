"""The folder of a run's finished work: a manifest, and shards that are complete or absent.

A shard holds the rows of some documents. Which documents those are, and what their files looked like, is in its
metadata; where two shards hold the same document, the later one counts. A shard's name has a number and the SHA-256 of
its bytes, so one that was damaged is noticed: it is removed, reported, and its documents are done again.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vcc.errors import Failure, UsageError
from vcc.files import one_at_a_time, write_whole
from vcc.fleet.job import Done, Job
from vcc.fleet.sources import Item
from vcc.fleet.table import Row, parquet_bytes

log = logging.getLogger(__name__)
MANIFEST, LOCK, SHARDS, LEDGER = "manifest.json", "lock", "shards", "shards.txt"
KEY = b"documents"
NAME = re.compile(r"(\d{8})-([0-9a-f]{64})\.parquet")


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
            last = max((int(path.name[:8]) for path in self.paths()), default=0)
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
        found = (self.folder / SHARDS).glob("*.parquet")
        return sorted(path for path in found if NAME.fullmatch(path.name))

    def kept(self) -> dict[str, Kept]:
        """By the name of the document. What was half written when a run was killed, and what is damaged, is removed."""
        for left in (self.folder / SHARDS).glob(".writing-*"):
            left.unlink(missing_ok=True)
        found: dict[str, Kept] = {}
        good: set[str] = set()
        for path in self.paths():
            if (data := whole(path)) is None:
                log.warning("%s is damaged: its documents are done again", path)
                with suppress(OSError):  # it is passed over at every run, then
                    path.unlink()
                continue
            good.add(path.name)
            about = (pq.read_schema(pa.BufferReader(data)).metadata or {})[KEY]
            found |= {name: Kept(stamp, path.name, kind) for name, stamp, kind in json.loads(about)}
        self._report_others(good)
        return found

    def _report_others(self, good: set[str]) -> None:
        """Report files that are not ours, which stay, and shards that the ledger lists and that are gone."""
        for path in sorted((self.folder / SHARDS).glob("*.parquet")):
            if not NAME.fullmatch(path.name):
                log.warning("%s is not a shard of this run: it is ignored, and its documents are done again", path)
        ledger = self.folder / LEDGER
        with suppress(OSError):
            listed = {name for name in ledger.read_text(encoding="utf-8", errors="replace").split() if NAME.match(name)}
            for name in sorted(listed - good):
                if not (self.folder / SHARDS / name).exists():
                    log.warning("%s is missing: its documents are done again", self.folder / SHARDS / name)
            if listed != good:
                write_whole(ledger, "".join(f"{name}\n" for name in sorted(good)))

    def commit(self, done: Iterable[Done]) -> None:
        """Store the rows of some documents, all or none."""
        done = sorted(done, key=lambda one: one.item.name)
        about = json.dumps([(one.item.name, one.item.stamp, one.kind) for one in done])
        data = parquet_bytes([row for one in done for row in one.rows], {KEY.decode(): about})
        name = f"{next(self.numbers):08d}-{hashlib.sha256(data).hexdigest()}.parquet"
        write_whole(self.folder / SHARDS / name, data)
        with (
            suppress(OSError),
            (self.folder / LEDGER).open("a", encoding="utf-8") as ledger,
        ):  # only to name what is lost
            ledger.write(f"{name}\n")

    def rows(self, items: Iterable[Item]) -> list[Row]:
        """The stored rows of these documents, sorted by name."""
        kept = self.kept()
        wanted = {item.name: kept[item.name].shard for item in items if item.name in kept}
        found: dict[str, list[Row]] = {name: [] for name in sorted(wanted)}
        for shard in sorted(set(wanted.values())):
            if (data := whole(self.folder / SHARDS / shard)) is None:
                raise Failure(f"{self.folder / SHARDS / shard} was damaged just now: run it again")
            for row in pq.read_table(pa.BufferReader(data)).to_pylist():
                if wanted.get(row["document"]) == shard:
                    found[row["document"]].append(row)
        return [row for rows in found.values() for row in rows]

    def size(self) -> int:
        return sum(os.path.getsize(path) for path in self.paths())


def whole(path: Path) -> bytes | None:
    """The bytes of a shard; None if they are not those that were written."""
    name = NAME.fullmatch(path.name)
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return data if name and hashlib.sha256(data).hexdigest() == name[2] else None


def missing(items: Iterable[Item], kept: dict[str, Kept], retry: bool) -> list[Item]:
    """Documents that are missing or have changed; with `retry`, also those that failed."""

    def is_kept(item: Item) -> bool:
        found = kept.get(item.name)
        return found is not None and found.stamp == item.stamp and not (retry and found.kind is not None)

    return [item for item in items if not is_kept(item)]
