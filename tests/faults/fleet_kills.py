"""Kill a run over many documents again and again: the table must be that of a run that nobody disturbed, bit for bit.

Generates contracts of mixed length, some of them poisoned, and asks each, three times: in one process, in `--workers`
undisturbed, and in `--workers` with SIGKILLs at random moments: of the driver, of a worker, or of a process that reads
a file. A killed driver is started again with the same command.

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
from pathlib import Path

import psutil

from tests.documents import small_model
from tests.fleet.collections import contracts
from vcc.fleet.run import CHUNK_ITEMS

RUN = """
import json, sys
from pathlib import Path
from vcc.documents.review_table import Question
from vcc.fleet.job import Job
from vcc.fleet.run import Engine, run
from vcc.fleet.sources import find_items
folder, model, out, workers = sys.argv[1:]
job = Job("ask", model, (Question("w1 w2 w3 ?"), Question("w40 w41 ?")), top=2)
tally = run(job, find_items([folder]).items, Path(out), Engine(int(workers)))
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
    facts: dict[str, object] = vars(given) | {"cores": os.cpu_count()}
    few = contracts(place / "few", max(given.workers, 1) * CHUNK_ITEMS, 0, given.seed)  # something for every worker
    measured = {}
    for name, workers in (("one_process", 0), ("workers", given.workers)):
        start = timed([*command[:3], str(few), model, str(place / f"few {name}.parquet"), str(workers)])
        done = timed([*command, str(place / f"{name}.parquet"), str(workers)])
        facts[name] = done | {"start_cpu_seconds": start["cpu_seconds"]}
        measured[name] = done["cpu_seconds"] - start["cpu_seconds"]
    # Of processor time, because others may use the machine too; starting is no part of it.
    facts["overhead"] = round(measured["workers"] / measured["one_process"] - 1, 3)
    killed = disturbed([*command, str(place / "killed.parquet"), str(given.workers)], given, facts)
    tables = [(place / f"{name}.parquet").read_bytes() for name in ("one_process", "workers", "killed")]
    facts |= {"kills": killed, "bit_identical": tables[0] == tables[1] == tables[2]}
    print(json.dumps(facts, indent=1))
    return 0 if facts["bit_identical"] and sum(killed.values()) == given.kills else 1


def timed(command: list[str]) -> dict:
    """What a run says of itself, and the processor time that it and all processes below it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout) | {"cpu_seconds": round(cpu, 2)}


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
