"""What `finetune`, `pretrain` and `evaluate` measure is what was asked for, and they say what that is."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel, RobertaConfig

from tests.train import small
from vcc.cli import main
from vcc.data.example import Example
from vcc.hosts.forward.wrapped import Wrapped
from vcc.tasks import TASKS
from vcc.train.checkpoint import checkpoints
from vcc.train.draws import some_of
from vcc.train.scores import paper_result

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
    assert "earlier results kept" in capsys.readouterr().err


def test_an_evaluation_says_where_its_examples_are_not_those_of_the_training(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["evaluate", "needle", "--model", trained, "--examples", 1, "--device", "cpu", "--out", tmp_path]
    assert run(*start, "--lengths", 50) == 0
    assert "had lengths [60]; here it is (50,)" in capsys.readouterr().err


def test_what_was_settled_is_said_first(bert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["finetune", "needle", "--model", bert, "--fresh", *needle(60), *FAST]
    assert run(*start, "--out", tmp_path / "vcc", *VCC) == 0
    shown = capsys.readouterr().err
    for words in (
        "training: 3 steps of 2 examples, learning rate 0.001 after a warm-up of 100 steps, weight decay 0.01, fp32",
        "VCC is on: scales (4, 1), budget (3,), 1 of 2 layers on windows of 64 tokens, score attention, every input",
        "the warm-up of 100 steps is longer than the run, of 3",
        "warning: --fresh: all weights start at random",
    ):
        assert words in shown
    assert run(*start, "--out", tmp_path / "plain", "--vcc", "false") == 0
    assert "VCC is off: untouched BertForQuestionAnswering" in capsys.readouterr().err


def test_a_head_that_starts_at_random_is_warned_of(
    bert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    BertModel(BertConfig.from_pretrained(bert)).save_pretrained(tmp_path / "headless")
    start = ["finetune", "needle", "--model", tmp_path / "headless", "--tokenizer", bert, "--out", tmp_path / "run"]
    assert run(*start, *needle(60), *VCC, *FAST) == 0
    said = capsys.readouterr().err
    assert "warning: " in said and "has no weights qa_outputs.bias, qa_outputs.weight: they start at random" in said


def test_some_examples_are_drawn_from_all_of_them_and_are_the_same_for_everyone() -> None:
    examples = [Example(str(i), "q", "d") for i in range(1000)]
    some = [int(example.id) for example in some_of(examples, 100)]
    assert len(set(some)) == 100 and some == sorted(some) and 400 < sum(some) / 100 < 600
    assert some == [int(example.id) for example in some_of(examples, 100)]
    assert some_of(examples, None) is examples and some_of(examples, 1000) is examples


def test_the_papers_result_is_that_of_the_same_size_length_and_method() -> None:
    def scores(model_type: str, layers: int, width: int, length: int, wrapped: bool = True) -> tuple[Any, ...]:
        config = RobertaConfig(num_hidden_layers=layers, hidden_size=width, intermediate_size=4 * width)
        config.model_type = model_type
        model = type("Model", (Wrapped,) if wrapped else (), {"__init__": lambda self: None, "config": config})()
        found = paper_result(TASKS["wikihop"](), "choice", model, length)
        return () if found is None else (found.method, found.size, dict(found.scores)["accuracy"])

    assert scores("vcc-roberta", 12, 768, 4096) == ("VCC", "base", 75.9)
    assert scores("vcc-roberta", 24, 1024, 4096) == ("VCC*", "large", 79.6)
    assert scores("roberta", 12, 768, 4096, wrapped=False) == ("RoBERTa", "base", 75.2)
    assert scores("roberta", 12, 768, 512, wrapped=False) == ("RoBERTa", "base", 67.6)
    assert scores("longformer", 12, 768, 4096, wrapped=False) == ("Longformer", "base", 74.3)
    assert scores("vcc-bert", 6, 384, 4096) == scores("vcc-roberta", 12, 768, 16384) == ()


PIECES = 5  # of a model of two layers: the beginning, a window layer, the tree, a compressed layer, the end


@pytest.mark.parametrize("wrapped", [True, False])
def test_training_and_evaluation_can_compile(
    wrapped: bool, bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler itself takes a minute and is tested elsewhere: here, that it is asked to compile what is run."""
    compiled: list[str] = []
    run_it = lambda function, **_: lambda *given, **more: (compiled.append("ran"), function(*given, **more))[1]
    monkeypatch.setattr(torch, "compile", run_it)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **_: compiled.append(type(self).__name__))
    more = VCC if wrapped else ["--vcc", "false"]
    start = ["finetune", "needle", "--model", bert, "--fresh", "--out", tmp_path, *needle(60), *more, *FAST]
    assert run(*start, "--compile") == 0
    assert compiled == (["ran"] * 3 * PIECES if wrapped else ["BertForQuestionAnswering"])  # three steps
    compiled.clear()
    assert (
        run("evaluate", "needle", "--model", tmp_path, *needle(60), "--examples", 2, "--compile", "--device", "cpu")
        == 0
    )
    assert compiled == (["ran"] * PIECES if wrapped else ["BertForQuestionAnswering"])
