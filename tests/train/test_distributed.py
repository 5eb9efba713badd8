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

from tests.train import marked, small

ROOT = Path(__file__).parents[2]
TOLERANCE = {"atol": 2e-6, "rtol": 2e-6}  # sums in another order, float32


def launch(out: Path, **options: object) -> str:
    """Train on two processes; what they said."""
    return command(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            "tests/train/marked.py",
            str(out),
            json.dumps(options),
        ]
    )


def command(words: list[str]) -> str:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
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


@pytest.mark.slow
@pytest.mark.parametrize("fsdp", [False, True], ids=["DDP", "FSDP2"])
def test_two_processes_have_the_losses_of_one(fsdp: bool, alone: Path, tmp_path: Path) -> None:
    said = launch(tmp_path / "two", fsdp=fsdp)
    run = json.loads((tmp_path / "two" / "run.json").read_text())
    assert said.count("done: 12 steps") == 1 and run["processes"] == 2
    assert f"parameters are {{'{'DTensor' if fsdp else 'Parameter'}'}}" in said
    torch.testing.assert_close(losses(tmp_path / "two"), losses(alone), **TOLERANCE)


@pytest.mark.slow
def test_two_processes_evaluate_as_one_does(tmp_path: Path) -> None:
    """Launched by Accelerate, which has no launcher for several CPU processes but its one for GPUs, a torchrun. Seven
    examples do not divide by two.
    """
    model = small.encoder(tmp_path / "model")
    given = [
        "-m",
        "vcc.cli",
        "evaluate",
        "needle",
        "--model",
        model,
        "--fresh",
        "--lengths",
        "100",
        "--length",
        "80",
        "--examples",
        "7",
        "--batch-size",
        "2",
        "--device",
        "cpu",
    ]
    two = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes=2",
        "--num_machines=1",
        "--mixed_precision=no",
        "--dynamo_backend=no",
        "--main_process_port=0",
    ]
    command([sys.executable, *given, "--out", str(tmp_path / "one")])
    command([*two, *given, "--out", str(tmp_path / "two")])
    answers = [(tmp_path / out / "predictions.jsonl").read_text() for out in ("one", "two")]
    metrics = [json.loads((tmp_path / out / "metrics.json").read_text()) for out in ("one", "two")]
    assert [found.pop("processes") for found in metrics] == [1, 2]
    assert answers[0] == answers[1] and metrics[0] == metrics[1]


@pytest.mark.slow
@pytest.mark.parametrize("fsdp", [False, True], ids=["DDP", "FSDP2"])
def test_two_processes_resume_bit_for_bit_with_dropout(fsdp: bool, tmp_path: Path) -> None:
    launch(tmp_path, fsdp=fsdp, dropout=0.1)
    last = tmp_path / "checkpoint-12"
    before = (last / "model.safetensors").read_bytes(), losses(tmp_path)
    shutil.rmtree(last)
    assert f"resuming from {tmp_path}/checkpoint-9" in launch(tmp_path, fsdp=fsdp, dropout=0.1, resume=True)
    assert ((last / "model.safetensors").read_bytes(), losses(tmp_path)) == before


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
