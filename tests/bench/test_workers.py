"""Workers of `vcc bench`: measured one at a time, whatever becomes of the others."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from vcc.bench import report
from vcc.bench.measure import OUT_OF_MEMORY, BenchCell
from vcc.bench.settings import BenchSettings
from vcc.bench.workers import CellKey, Outcome, wave
from vcc.commands.bench import bench

ROOT = Path(__file__).parents[2]
TINY = BenchSettings(("bert",), (64,), "tiny", "fp32", "cpu", False)


def work(name: str, n: int, mode: str, settings: BenchSettings, ready: Callable[[], None]) -> Outcome:
    """Stands in for a measurement, in the child; what happens is noted in a file, a line each."""
    note(f"{name} prepared")
    if name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "stuck":
        print("stuck", flush=True)
        time.sleep(1000)
    if name == "large" and settings.workers > 1:
        return BenchCell(name, n, mode, OUT_OF_MEMORY), None
    ready()
    note(f"{name} begins")
    if name == "exits":
        os._exit(3)
    note(f"{name} ends")
    seen = f"{torch.get_num_threads()} threads, {os.environ['TORCHINDUCTOR_COMPILE_THREADS']} to compile"
    return BenchCell(name, n, mode, "measured", seen, n, ms=2000.0, runs=settings.workers), None


def note(line: str) -> None:
    if path := os.environ.get("VCC_TEST_NOTES"):
        with open(path, "a") as file:
            file.write(line + "\n")


@pytest.mark.slow
def test_one_is_measured_at_a_time_and_what_dies_or_does_not_fit_stops_no_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VCC_TEST_NOTES", str(tmp_path / "notes"))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 11)
    names = ("large", "exits", "killed", "fine")
    found = {cell.model: cell for cell, _ in wave([CellKey(name, 64, "forward") for name in names], TINY, work)}
    assert {name: cell.outcome for name, cell in found.items()} == {
        "killed": "failed: its process was killed by SIGKILL before it was ready",
        "exits": "failed: its process ended with exit code 3 before it was measured",
        "fine": "measured",
        "large": "measured",
    }
    assert found["fine"].runs == 4 and found["fine"].attention == "2 threads, 2 to compile"
    assert found["large"].runs == 1 and found["large"].attention == "2 threads, 11 to compile"
    notes = (tmp_path / "notes").read_text().splitlines()
    assert sorted(notes[:4]) == sorted(f"{name} prepared" for name in names)
    assert notes[4:] == [
        "exits begins", "fine begins", "fine ends", "large prepared", "large begins", "large ends",
    ]  # fmt: skip


def test_one_that_is_never_ready_is_given_up() -> None:
    (outcome,) = wave([CellKey("stuck", 64, "forward")], replace(TINY, patience=0.1), work)
    assert outcome == (BenchCell("stuck", 64, "forward", "failed: not ready in time"), None)


@pytest.mark.slow
def test_children_end_when_their_parent_is_killed() -> None:
    code = "from tests.bench.test_workers import *; next(wave([CellKey('stuck', 64, 'forward')], TINY, work))"
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths}
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"stuck\n"  # the child's; it has the same standard output, and sleeps
        parent.kill()
        parent.communicate(timeout=100)  # returns when nobody holds it any more


@pytest.mark.parametrize(
    ("limit", "waves", "outcomes"),
    [
        (None, [[64, 64, 128], [128]], ["measured"] * 4),
        (8.1, [[64, 64], [128, 128]], ["measured"] * 4),
        (7.9, [[64, 64]], ["measured"] * 2 + ["skipped: 8 s predicted"] * 2),
    ],
)
def test_a_limit_is_kept_by_waves(
    limit: float | None, waves: list[list[int]], outcomes: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = []

    def pretended(jobs: list[CellKey], settings: BenchSettings) -> Iterator[Outcome]:
        seen.append([job.length for job in jobs])
        yield from ((BenchCell(*job, "measured", ms=2000.0, runs=1), None) for job in jobs)

    monkeypatch.setattr("vcc.bench.cells.wave", pretended)
    run = bench(preset="cpu", models=("bert", "t5"), lengths=(64, 128), limit=limit, workers=3, out=tmp_path)
    assert [sizes for sizes in seen if sizes] == waves
    assert [cell.outcome for cell in run.cells] == outcomes


@pytest.mark.slow
def test_the_command_measures_with_workers(tmp_path: Path) -> None:
    run = bench(
        preset="cpu", size="tiny", models=("vcc-bert", "bert"), lengths=(64,), profile=True, workers=2, out=tmp_path
    )
    assert [(cell.model, cell.outcome) for cell in run.cells] == [("vcc-bert", "measured"), ("bert", "measured")]
    assert run.cells[0].attention.startswith("compressed, sdpa") and run.cells[0].ms
    assert {"windows", "choose", "read", "layer", "write"} <= run.profiles[0].stages_ms.keys()
    assert report.load(tmp_path / "bench.json") == run


@pytest.mark.slow
def test_compiled_models_are_profiled_by_kernel(tmp_path: Path) -> None:
    run = bench(
        preset="cpu", size="tiny", models=("vcc-bert",), lengths=(64,), training=True, compile="ours", profile=True,
        workers=2, out=tmp_path,
    )  # fmt: skip
    for cell in run.cells:
        assert cell.attention == "compressed, compiled"
        assert any("addmm" in kernel.name for kernel in cell.kernels)
    assert len(run.profiles) == 2
    assert report.load(tmp_path / "bench.json") == run
