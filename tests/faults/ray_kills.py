"""Kill a node of a Ray cluster midway: the table must be that of one process, bit for bit.

Starts two nodes on this machine with `ray start`, asks generated contracts on them, and kills one node with SIGKILL,
all its processes, when some of the documents are done.

    python tests/faults/ray_kills.py --documents 10000 --poisoned 100
"""

import argparse
import json
import os
import secrets
import shutil
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
from vcc.fleet.run import Executor, Tally, run
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
    facts: dict[str, object] = vars(given)
    home = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # Ray's sockets allow short names only
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # of this cluster alone
    os.environ.update(RAY_raylet_start_wait_time_s="300")  # on a busy machine
    try:
        start_node("--head", f"--port={PORT}", f"--temp-dir={home}", "--include-dashboard=false", cpus=given.cpus)
        head = processes_of(home)
        start_node(f"--address=127.0.0.1:{PORT}", cpus=given.cpus)

        def kill_midway(tally: Tally) -> None:
            if tally.documents >= len(items) // 3 and "killed_at" not in facts:
                facts["killed_at"] = tally.documents
                raylets = [one for one in processes_of(home) - head if "raylet" in one.name()]
                kill({child for one in raylets for child in one.children(recursive=True)} | set(raylets))

        start = time.perf_counter()
        tally = run(
            job, items, place / "ray.parquet", Executor(2 * given.cpus, f"127.0.0.1:{PORT}"), report=kill_midway
        )
        facts |= {"seconds": round(time.perf_counter() - start, 1), "errors": tally.errors}
    finally:
        kill(processes_of(home))
        shutil.rmtree(home, ignore_errors=True)
    same = (place / "ray.parquet").read_bytes() == (place / "one.parquet").read_bytes()
    print(json.dumps(facts | {"bit_identical": same}, indent=1))
    return 0 if same and "killed_at" in facts else 1


def start_node(*options: str, cpus: int) -> None:
    subprocess.run([*RAY, "start", *options, f"--num-cpus={cpus}"], check=True, stdout=subprocess.DEVNULL)


def processes_of(home: Path) -> set[psutil.Process]:
    """Those of the cluster that was started with this folder."""
    found = psutil.process_iter(["cmdline"])
    return {
        one for one in found if any(str(home) in word for word in one.info["cmdline"] or ()) and one.pid != os.getpid()
    }


def kill(processes: set[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


if __name__ == "__main__":
    sys.exit(main())
