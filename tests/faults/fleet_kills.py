"""Kill a run over many documents again and again: the table must be that of a run that nobody disturbed, bit for bit.

Generates contracts of mixed length, some of them poisoned, and asks each, three times: in one process, in `--workers`
undisturbed, and in `--workers` with SIGKILLs at random moments: of the driver, of a worker, or of a process that reads
a file. A killed driver is started again with the same command.

The overhead is that of one run in `--workers` over as many runs of one process each, side by side, that share the same
documents among them: in time on the clock, and in processor time, where others use the machine too.

    python tests/faults/fleet_kills.py --documents 10000 --poisoned 100 --kills 20 --workers 4
"""

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from tests.documents import small_model
from tests.fleet.collections import contracts

RUN = """
import json, sys
from pathlib import Path
from vcc.documents.review_table import Question
from vcc.fleet.job import Job
from vcc.fleet.run import Executor, run
from vcc.fleet.sources import find_items
folder, model, out, workers = sys.argv[1:]
job = Job("ask", model, (Question("w1 w2 w3 ?"), Question("w40 w41 ?")), top=2)
tally = run(job, find_items([folder]).items, Path(out), Executor(int(workers)))
print(json.dumps({name: getattr(tally, name) for name in ("documents", "errors", "tokens", "seconds")}))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=300)
    parser.add_argument("--poisoned", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument(
        "--words", type=int, default=30, help="in the shortest contract; the longest has 16 times as many"
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleet-kills-") as place:
        return tried(given, Path(place))


def tried(given: argparse.Namespace, place: Path) -> int:
    folder = contracts(place / "contracts", given.documents, given.poisoned, given.seed, given.words)
    model = small_model.saved(place / "model")
    command = [sys.executable, "-c", RUN, str(folder), model]
    facts: dict[str, Any] = vars(given) | {"cores": os.cpu_count()}
    parts = [place / f"part {number}" for number in range(given.workers)]
    for number, file in enumerate(sorted(file for file in folder.rglob("*") if file.is_file())):
        linked = parts[number % given.workers] / file.relative_to(folder)
        linked.parent.mkdir(parents=True, exist_ok=True)
        linked.hardlink_to(file)
    facts["one_process"] = timed([[*command, str(place / "one_process.parquet"), "0"]])
    beside = [[*command[:3], str(part), model, str(place / f"{part.name}.parquet"), "0"] for part in parts]
    facts["side_by_side"] = timed(beside)
    facts["workers"] = timed([[*command, str(place / "workers.parquet"), str(given.workers)]])
    for what in ("clock", "processor"):
        facts[f"{what}_overhead"] = round(facts["workers"][what] / facts["side_by_side"][what] - 1, 3)
    killed = disturbed([*command, str(place / "killed.parquet"), str(given.workers)], given, facts)
    tables = {name: place / f"{name}.parquet" for name in ("one_process", "workers", "killed")}
    facts |= {"kills": killed, "bit_identical": len({table.read_bytes() for table in tables.values()}) == 1}
    if not facts["bit_identical"]:
        facts["different"] = different(tables)
    print(json.dumps(facts, indent=1))
    return 0 if facts["bit_identical"] and sum(killed.values()) == given.kills else 1


def different(tables: dict[str, Path]) -> list[dict]:
    """The first rows that are not the same everywhere, by the name of the table."""
    rows = {name: pq.read_table(table).to_pylist() for name, table in tables.items()}
    found = (dict(zip(rows, some, strict=True)) for some in zip_longest(*rows.values()))
    return list(islice((each for each in found if len({json.dumps(row) for row in each.values()}) > 1), 5))


def timed(commands: list[list[str]]) -> dict:
    """What the last of some runs side by side says of itself, and the time that all took, with what is below them."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE) for command in commands]
    said = [run.communicate()[0] for run in runs]
    if any(run.returncode for run in runs):
        raise SystemExit("a run failed")
    after, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - start
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(said[-1]) | {"processor": round(cpu, 1), "clock": round(clock, 1)}


def disturbed(command: list[str], given: argparse.Namespace, facts: dict) -> dict[str, int]:
    """Kill, start again, until all kills are done and the run has come to its end: how many of each kind."""
    rng, killed = random.Random(given.seed), {"driver": 0, "worker": 0, "reader": 0}
    pause = float(facts["workers"]["seconds"]) / (given.kills + 1)
    starts = 0
    while True:
        starts += 1
        driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while driver.poll() is None:
            time.sleep(rng.uniform(0.2, 1.8) * pause)
            if sum(killed.values()) < given.kills and driver.poll() is None:
                kind, process = victim(driver.pid, rng)
                killed[kind] += 1
                os.kill(process, signal.SIGKILL)
        if driver.returncode == 0:
            facts["driver_starts"] = starts
            return killed


def victim(driver: int, rng: random.Random) -> tuple[str, int]:
    """The driver, or one of the processes below it."""
    try:
        workers = psutil.Process(driver).children()
        readers = [reader for worker in workers for reader in worker.children()]
    except psutil.NoSuchProcess:
        workers = readers = []
    kinds = {"driver": [driver], "worker": [one.pid for one in workers], "reader": [one.pid for one in readers]}
    there = [kind for kind, found in kinds.items() if found]
    kind = rng.choice(there + there[1:])  # a driver less often: it takes all others with it
    return kind, rng.choice(kinds[kind])


if __name__ == "__main__":
    sys.exit(main())
