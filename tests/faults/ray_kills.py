"""Kill a node of a Ray cluster midway: the table must be that of one process, bit for bit.

Starts two nodes on this machine with `ray start`, asks generated contracts on them, and kills one node with SIGKILL,
all its processes, when some of the documents are done.

    python tests/faults/ray_kills.py --documents 10000 --poisoned 100
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.documents import small_model
from tests.fleet.collections import contracts
from vcc.documents.review_table import Question
from vcc.fleet.job import Job
from vcc.fleet.run import Engine, Tally, run
from vcc.fleet.sources import find_items

RAY = [str(Path(sys.executable).with_name("ray"))]
PORT = "6398"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=300)
    parser.add_argument("--poisoned", type=int, default=3)
    parser.add_argument("--cpus", type=int, default=2, help="of each node")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ray-kills-") as place:
        return tried(given, Path(place))


def tried(given: argparse.Namespace, place: Path) -> int:
    items = find_items([str(contracts(place / "contracts", given.documents, given.poisoned))]).items
    job = Job("ask", small_model.saved(place / "model"), (Question("w1 w2 w3 ?"),), top=2)
    run(job, items, place / "one.parquet")
    node: list[psutil.Process] = []
    facts: dict[str, object] = vars(given)
    try:
        start_node("--head", f"--port={PORT}", "--include-dashboard=false", cpus=given.cpus)
        before = set(psutil.pids())
        start_node(f"--address=127.0.0.1:{PORT}", cpus=given.cpus)
        node += [psutil.Process(pid) for pid in set(psutil.pids()) - before if is_of_ray(pid)]

        def kill_midway(tally: Tally) -> None:
            if node and tally.documents >= len(items) // 3:
                facts["killed_at"] = tally.documents
                for process in [child for one in node for child in one.children(recursive=True)] + node:
                    end(process)
                node.clear()

        start = time.perf_counter()
        tally = run(job, items, place / "ray.parquet", Engine(2 * given.cpus, f"127.0.0.1:{PORT}"), report=kill_midway)
        facts |= {"seconds": round(time.perf_counter() - start, 1), "errors": tally.errors}
    finally:
        subprocess.run([*RAY, "stop", "--force"], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    same = (place / "ray.parquet").read_bytes() == (place / "one.parquet").read_bytes()
    print(json.dumps(facts | {"bit_identical": same}, indent=1))
    return 0 if same and "killed_at" in facts else 1


def start_node(*options: str, cpus: int) -> None:
    subprocess.run([*RAY, "start", *options, f"--num-cpus={cpus}"], check=True, stdout=subprocess.DEVNULL)


def is_of_ray(pid: int) -> bool:
    try:
        return any("ray" in word for word in psutil.Process(pid).cmdline()[:2])
    except psutil.NoSuchProcess:
        return False


def end(process: psutil.Process) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
