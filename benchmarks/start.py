"""How long does `vcc ask` of a short file take from a cold start, and `vcc serve` until it is healthy?

    python -m benchmarks.start --before ../before

Both commands run in new processes, by turns with those of another checkout if there is one. Printed: processor seconds
of the process and its children, which other programs on the machine change little, and seconds on the clock, which mean
something on a quiet machine only. Each figure is the best of --repeats turns. `import torch` alone is beside them: no
command that loads a model can be faster.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parents[1]
CONTRACT = "This agreement is governed by the laws of the State of New York. It ends on May 5, 2020. " * 8


class Took(NamedTuple):
    processor: float
    clock: float


def environment(checkout: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(checkout / "src")}


def ended(*command: str, checkout: Path) -> Took:
    """What a command takes until it ends."""
    before, start = os.times(), time.perf_counter()
    subprocess.run([sys.executable, *command], env=environment(checkout), check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return Took(processor, time.perf_counter() - start)


def healthy(checkout: Path) -> Took:
    """What the service takes until it answers /health."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "vcc", "serve", "--port", "0", "--folder", folder]
        start = time.perf_counter()
        with subprocess.Popen(
            command, env=environment(checkout), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            while True:
                with suppress(OSError):
                    urllib.request.urlopen(f"{address}/health", timeout=5).read()
                    break
                time.sleep(0.02)
            clock, processor = time.perf_counter() - start, seconds_of(process.pid)
            process.terminate()
        return Took(processor, clock)


def seconds_of(process: int) -> float:
    """The processor seconds of a process and its children so far, from Linux's files."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    used = 0
    for number in (str(process), *children):
        with suppress(FileNotFoundError):
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            used += sum(map(int, fields[11:15]))  # own and those of ended children
    return used / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of another commit")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    checkouts = {"now": HERE} | ({"before": given.before} if given.before else {})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "short.txt")
        file.write_text(CONTRACT, encoding="utf-8")
        ask = ("-m", "vcc", "ask", str(file), "Which law governs it?", "--no-cache")
        works = {
            "import torch": lambda checkout: ended("-c", "import torch", checkout=checkout),
            "vcc ask": lambda checkout: ended(*ask, checkout=checkout),
            "vcc serve, until healthy": healthy,
        }
        for name, work in works.items():
            found: dict[str, list[Took]] = {which: [] for which in checkouts}
            for _ in range(given.repeats):
                for which, checkout in checkouts.items():
                    found[which].append(work(checkout))
            best = {which: Took(*map(min, zip(*some, strict=True))) for which, some in found.items()}
            told = [f"{which} {took.processor:.2f} s ({took.clock:.2f} s)" for which, took in best.items()]
            print(f"{name}: {', '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
