"""Is a compiled model still as fast as at another commit?

    python benchmarks/before_after.py ../before --out out/before_after

All cases are compiled concurrently, which takes most of the time, and then wait; when all are ready, they are timed
sequentially, each alone, the commits in alternation: each pair of figures comes from one run. See `first_call.py` for
what is timed. This checkout is also timed as compiled in pieces, by the `--ways` given. results.json is written after
every timing.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.first_call import SIZES, WAYS, case

HERE = Path(__file__).resolve().parents[1]


@dataclass
class Waiting:
    """A process that compiles, reports that it is ready, and waits for its turn."""

    words: tuple[str, str, str]  # length, mode, way
    folder: Path
    process: subprocess.Popen[str]

    def ready(self) -> bool:
        return (self.folder / "ready").exists() or self.process.poll() is not None

    def result(self, patience: float) -> dict[str, Any]:
        (self.folder / "go").touch()
        try:
            told, errors = self.process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return {"failed": f"not timed in {patience:.0f} s"}
        return {"failed": errors.strip()[-2000:]} if self.process.returncode else json.loads(told.splitlines()[-1])


def started(words: tuple[str, str, str], checkout: Path, folder: Path, size: str) -> Waiting:
    folder.mkdir(parents=True)
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TRITON_CACHE_DIR": str(folder / "cache/triton")}
    caches["TORCHINDUCTOR_COMPILE_THREADS"] = "3"  # of each: all have as many as cores otherwise, and memory runs out
    process = subprocess.Popen(
        [sys.executable, __file__, "--case", *words, size, str(folder)],
        env=os.environ | caches | {"PYTHONPATH": str(checkout / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return Waiting(words, folder, process)


def wait_for_turn(folder: Path) -> None:
    (folder / "ready").touch()
    while not (folder / "go").exists():
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?", help="a checkout of another commit")
    parser.add_argument("--out", type=Path, default=Path("out/before_after"))
    parser.add_argument("--lengths", default="4096,16384,131072")
    parser.add_argument("--modes", default="forward,training")
    parser.add_argument("--ways", default="pieces", help=f"of this checkout, some of {', '.join(WAYS[1:])}")
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--patience", type=float, default=300, help="seconds until all have been compiled")
    parser.add_argument("--case", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        length, mode, way, size, folder = given.case
        compiled = way if way in WAYS else "whole"  # of "before" and "now"
        print(json.dumps(case(int(length), mode, compiled, size, lambda: wait_for_turn(Path(folder)))))
        return
    if given.before is None or not (given.before / "src/vcc").is_dir():
        parser.error(f"before is {given.before}: it must be a folder with src/vcc in it")
    ways = ("before", "now", *given.ways.split(","))
    given.out.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        cases = [
            started(words, given.before if words[2] == "before" else HERE, Path(place, *words), given.size)
            for words in product(given.lengths.split(","), given.modes.split(","), ways)
        ]
        start = time.perf_counter()
        while not all(one.ready() for one in cases) and time.perf_counter() - start < given.patience:
            time.sleep(0.5)
        print(f"compiled in {time.perf_counter() - start:.0f} s")
        print("length mode way: graph ms, call ms, python ms", flush=True)
        for one in cases:
            found = one.result(60) if one.ready() else {"failed": f"not compiled in {given.patience:.0f} s"}
            one.process.kill()
            results.append(dict(zip(("length", "mode", "way"), one.words, strict=True)) | found)
            (given.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
            times = ", ".join(f"{found.get(name, 0):.2f}" for name in ("graph_ms", "call_ms", "python_ms"))
            print(*one.words, found.get("failed", times).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
