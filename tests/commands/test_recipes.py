"""What `finetune`, `pretrain` and `evaluate` measure is what was asked for, and they say what that is."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.train import small
from vcc.cli import main
from vcc.train.checkpoint import checkpoints

VCC = ["--scales", "4,1", "--budget", "3", "--window", "64", "--window-layers", "1"]
FAST = ["--steps", "3", "--batch-size", "2", "--log-every", "1", "--device", "cpu"]


def run(*arguments: Any) -> int:
    return main([str(argument) for argument in arguments])


def record(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.json").read_text())


def needle(length: int) -> list[Any]:
    return ["--lengths", length, "--length", length]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small.encoder(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def trained(bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained")
    assert run("finetune", "needle", "--model", bert, "--out", out, "--fresh", *needle(60), *VCC, *FAST) == 0
    return out


def test_every_input_is_compressed_unless_somebody_says_otherwise(
    trained: Path, bert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """60 tokens, less than two windows, are too few to gain from compression."""
    assert record(trained)["vcc"]["dense_below"] == 0
    assert record(trained)["compressed"] == {"compressed": 6, "inputs": 6}
    history = json.loads((checkpoints(trained)[0] / "trainer_state.json").read_text())["log_history"]
    assert [point["compressed"] for point in history] == [100.0] * 3
    start = ["finetune", "needle", "--model", bert, "--out", tmp_path, "--fresh", *needle(60), *VCC, *FAST]
    assert run(*start, "--dense-below", "auto", "--save-every", 2) == 0
    assert record(tmp_path)["compressed"] == {"compressed": 0, "inputs": 6}
    shown = capsys.readouterr().err
    assert "compressed 0%" in shown and "compressed: 0 of 6 inputs (0.0%)" in shown


def test_an_evaluation_tells_the_share_of_compressed_inputs(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["evaluate", "needle", "--model", trained, *needle(60), "--examples", 5, "--device", "cpu"]
    for more, compressed in (([], 5), (["--dense-below", "auto"], 0)):
        out = tmp_path / str(compressed)
        assert run(*start, "--out", out, *more) == 0
        assert json.loads((out / "metrics.json").read_text())["compressed"] == {"compressed": compressed, "inputs": 5}
        assert f"compressed: {compressed} of 5 inputs" in capsys.readouterr().err


def test_the_share_of_a_resumed_run_is_that_of_all_of_it(trained: Path, bert: str, tmp_path: Path) -> None:
    start = ["finetune", "needle", "--model", bert, "--out", tmp_path, "--fresh", *needle(60), *VCC, *FAST]
    assert run(*start, "--save-every", 2) == 0
    for file in checkpoints(tmp_path)[0].iterdir():  # the last one is gone; step 2 is left
        file.unlink()
    assert run(*start, "--save-every", 2, "--resume") == 0
    assert record(tmp_path)["compressed"] == {"compressed": 6, "inputs": 6}


def test_a_plain_baseline_is_evaluated_plain_as_it_was_trained(bert: str, tmp_path: Path) -> None:
    """And at its length: it has 64 positions, and the task's own length is 4,096."""
    plain = ["--fresh", *needle(60), "--vcc", "false"]
    assert run("finetune", "needle", "--model", bert, "--out", tmp_path, *plain, *FAST) == 0
    start = ["evaluate", "needle", "--model", tmp_path, "--lengths", 60, "--examples", 2, "--device", "cpu"]
    assert run(*start) == 0
    assert run(*start, "--vcc", "true", "--budget", 3) == 0
    assert run(*start, "--budget", 3) == 2, "without VCC there is no budget"
    folder = tmp_path / "evaluation-needle-validation"
    first, second = (json.loads((folder / name).read_text()) for name in ("metrics-1.json", "metrics.json"))
    assert first["vcc"] is None and first["compressed"] is None and first["length"] == 60
    assert second["vcc"]["budget"] == [3] and second["compressed"]["compressed"] == 2
    assert len((folder / "predictions-1.jsonl").read_text().splitlines()) == 2


def test_metrics_are_never_overwritten(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["evaluate", "needle", "--model", trained, "--lengths", 60, "--device", "cpu", "--out", tmp_path]
    for examples in (1, 2, 3):
        assert run(*start, "--examples", examples) == 0
    found = {path.name: json.loads(path.read_text())["examples"] for path in tmp_path.glob("metrics*.json")}
    assert found == {"metrics-1.json": 1, "metrics-2.json": 2, "metrics.json": 3}
    assert "kept from before" in capsys.readouterr().err


def test_an_evaluation_says_where_its_examples_are_not_those_of_the_training(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["evaluate", "needle", "--model", trained, "--examples", 1, "--device", "cpu", "--out", tmp_path]
    assert run(*start, "--lengths", 50) == 0
    assert "had lengths [60]; here it is (50,)" in capsys.readouterr().err
