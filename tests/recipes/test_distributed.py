"""Two processes learn what one learns with the same global batch; copied (DDP) or sharded (FSDP2)."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.recipes import marked

ROOT = Path(__file__).parents[2]
TOLERANCE = {"atol": 2e-6, "rtol": 2e-6}  # sums in another order, float32


def launch(out: Path, **options: object) -> str:
    """Train on two processes; what they said."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         "tests/recipes/marked.py", str(out), json.dumps(options)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
    )
    try:
        said, _ = process.communicate(timeout=200)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # torchrun ends its workers
        raise
    assert process.returncode == 0, said[-3000:]
    return said


def losses(out: Path) -> list[float]:
    state = json.loads((out / "checkpoint-12" / "trainer_state.json").read_text())
    return [entry["loss"] for entry in state["log_history"]]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone")
    marked.train(out, dropout=0.0)
    return out


@pytest.mark.parametrize("fsdp", [False, True], ids=["DDP", "FSDP2"])
def test_two_processes_have_the_losses_of_one(fsdp: bool, alone: Path, tmp_path: Path) -> None:
    said = launch(tmp_path / "two", fsdp=fsdp)
    assert f"parameters are {{'{'DTensor' if fsdp else 'Parameter'}'}}" in said
    torch.testing.assert_close(losses(tmp_path / "two"), losses(alone), **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("fsdp", [False, True], ids=["DDP", "FSDP2"])
def test_a_checkpoint_of_one_process_is_continued_by_two_and_back(fsdp: bool, alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(alone, out)
    shutil.rmtree(out / "checkpoint-12")
    assert f"resuming from {out}/checkpoint-9" in launch(out, resume=True, fsdp=fsdp)
    torch.testing.assert_close(losses(out), losses(alone), **TOLERANCE)
    launch(tmp_path / "two", fsdp=fsdp)
    shutil.rmtree(tmp_path / "two" / "checkpoint-12")
    marked.train(tmp_path / "two", dropout=0.0, resume=True)
    torch.testing.assert_close(losses(tmp_path / "two"), losses(alone), **TOLERANCE)
