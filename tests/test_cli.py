"""The commands, as a person types them."""

import importlib
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import vcc
from tests.train import small
from vcc.cli import COMMANDS, main, summary
from vcc.train.checkpoint import checkpoints, damage

VCC = ["--scales", "4,1", "--budget", "3", "--window", "16", "--window-layers", "1", "--dense-below", "0"]
FAST = ["--steps", "3", "--batch-size", "2", "--log-every", "1", "--device", "cpu", "--fresh"]


def run(*arguments: Any) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small.encoder(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small.encoder_decoder(tmp_path_factory.mktemp("t5"))


@pytest.fixture(scope="module")
def trained(bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained")
    needle = ["--lengths", 100, "--length", 100]
    assert run("finetune", "needle", "--model", bert, "--out", out, *needle, *VCC, *FAST) == 0
    return out


def config_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "run.json").read_text())


def test_help_names_every_command_and_costs_no_torch() -> None:
    code = "import sys; from vcc.cli import main; main(['--help']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name, target in COMMANDS.items():
        assert f"  {name} " in done.stdout and summary(target) in done.stdout and len(summary(target)) > 10


def test_the_version_is_that_of_the_package() -> None:
    """Also as a module; and a checkout that nobody installed works, too."""
    expected = metadata.version("vcc-transformers")
    done = subprocess.run([sys.executable, "-m", "vcc", "--version"], capture_output=True, text=True)
    assert done.stdout == f"vcc {expected}\n" and vcc.__version__ == expected
    hidden = "import importlib.metadata as m; m.version = lambda name: m.distribution('no-such-package').version"
    code = f"{hidden}; import vcc.version; print(vcc.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "not installed\n", done.stderr


def test_the_summary_of_a_command_is_its_docstrings_first_line() -> None:
    for target in COMMANDS.values():
        module, _, function = target.partition(":")
        said = getattr(importlib.import_module(module), function).__doc__
        assert summary(target) == said.splitlines()[0]
    with pytest.raises(LookupError, match="has no function fly"):
        summary("vcc.commands.bench:fly")


@pytest.mark.parametrize(
    "arguments, word",
    [
        ([], "usage"),
        (["fly"], "unknown command 'fly'"),
        (["finetune"], "required: TASK"),
        (["finetune", "needle", "--model", "x"], "--out"),
        (["finetune", "needle", "--model", "x", "--out", "y", "--lenght", "3"], "unrecognized arguments: --lenght"),
        (["finetune", "needle", "--model", "/nowhere/at/all", "--out", "y"], "no model could be loaded"),
        (["evaluate", "nothing", "--model", "x"], "invalid choice: 'nothing'"),
        (["tasks", "--results", "nothing"], "unknown task 'nothing'"),
    ],
)
def test_bad_input_exits_with_2_and_says_why(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    shown = capsys.readouterr()
    assert word in shown.out + shown.err


def test_impossible_combinations_exit_with_2(bert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["finetune", "needle", "--model", bert, "--out", tmp_path / "x", "--lengths", 70, "--length", 70, *FAST]
    for more, word in (
        (["--vcc", "false"], "has 64 positions"),
        (["--vcc", "false", "--scales", "4,1"], "--vcc false cannot be combined with --scales"),
        (["--scales", "4,2"], "scales"),
        (["--head", "choice"], "no head 'choice'"),
        (["--data", "somewhere"], "it takes no source"),
        (["--fsdp"], "--fsdp needs several processes"),
        (["--length", "8"], "max_length 8"),
        (["--pairs", "99"], "pairs 99 must lie in 1..8"),
        (["--lengths", "40", "--pairs", "5"], "length 40 has room for 3 pairs, not 5"),
        (["--depths", "1.5"], "depths (1.5,) must lie in 0..1"),
        (["--window-layers", "99"], "window_layers=99: this model has only"),
        (["--budget", "1,2"], "budget=(1, 2) has 2 entries"),
        (["--minutes", "0"], "--minutes is 0.0: it must be greater than 0"),
    ):
        assert run(*start, *more) == 2, word
        assert word in capsys.readouterr().err
    assert checkpoints(tmp_path / "x") == []


def test_a_bug_is_not_shown_as_asked_wrongly(
    bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ValueError that is not meant for a person is reported as a bug, with its traceback, wherever it comes from."""

    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("a bug")

    start = ["needle", "--model", bert, "--fresh", "--lengths", 100, "--length", 100, "--device", "cpu"]
    train = ["finetune", *start, "--out", tmp_path / "x", *VCC, "--steps", 1, "--batch-size", 2]
    for place in (
        "vcc.tasks.needle.Needle.load",
        "vcc.data.features.ExampleTokenizer.__call__",
        "vcc.train.models.wrap",
        "vcc.train.run.Training.__post_init__",
    ):
        with monkeypatch.context() as planted:
            planted.setattr(place, broken)
            assert run(*train) == 1
            said = capsys.readouterr().err
            assert "this is a bug in vcc" in said and "Traceback" in said and said.endswith("ValueError: a bug\n\n")
    monkeypatch.setattr("vcc.tasks.needle.Needle.load", broken)
    assert run("evaluate", *start) == 1
    assert "this is a bug in vcc" in capsys.readouterr().err


def test_numbers_that_make_no_sense_are_refused_before_anything_is_done(
    bert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ["finetune", "needle", "--model", bert, "--out", tmp_path / "x", "--lengths", 100, "--length", 100, *FAST]
    for more in [
        "--examples 0",
        "--examples -1",
        "--eval-every 0",
        "--eval-every -1",
        "--eval-examples -1",
        "--length 0",
        "--clip nan",
        "--lr inf",
        "--weight-decay nan",
        "--weight-decay -1",
        "--depths -1",
        "--depths nan",
        "--depths 2",
        "--lengths 0",
        "--lengths 99999999999",
        "--train-examples -1",
        "--train-examples 0",
        "--seed -1",
        "--seed 1180591620717411303424",
        "--task-seed -1",
        "--lr 0",
        "--epochs 1e300 --steps 1",
        "--max-choices 0",
        "--batch-size 0",
        "--warmup -1",
        "--workers -1",
        "--keep 0",
        "--minutes nan",
        "--seed 1e5",
        "--explore nan",
        "--window 0",
        "--budget -1",
    ]:
        assert run(*train, *more.split()) == 2, more
        assert "Traceback" not in capsys.readouterr().err
    evaluate = ["evaluate", "needle", "--model", bert, "--fresh", "--lengths", 100, "--length", 100, "--device", "cpu"]
    for more in ("--batch-size 0", "--examples 0", "--examples -5", "--length -1", "--depths 2", "--lengths 0"):
        assert run(*evaluate, *more.split()) == 2, more
    assert not (tmp_path / "x").exists()


def test_a_message_holds_nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tasks", "\x1b[2J") == 2
    assert "\x1b" not in capsys.readouterr().err
    assert run("ask", "no\x1b[2J\x9bsuch\nvcc: forged.txt", "Q") == 2
    assert capsys.readouterr().err == "vcc: no\\x1b[2J\\x9bsuch\\nvcc: forged.txt: no such file\n"
    assert run("find", "no\nvcc: forged", "Q") == 2
    assert capsys.readouterr().err == "vcc: no\\nvcc: forged is not a folder: name one\n"


def test_a_question_may_stand_after_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        ["nowhere.txt", "--top", "1", "Q"],
        ["--top", "1", "nowhere.txt", "Q"],
        ["nowhere.txt", "Q", "--json"],
        ["nowhere.txt", "--json", "Q"],
        ["--json", "--no-cache", "nowhere.txt", "Q"],
        ["nowhere.txt", "--json", "false", "Q"],
    ):
        assert run("ask", *line) == 2
        assert "nowhere.txt: no such file" in capsys.readouterr().err


def test_tasks_lists_every_task_with_the_papers_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    from vcc.tasks import TASKS

    assert run("tasks") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in TASKS)
    assert "rouge1 35.7 rouge2 10.9 rougeL 31.1 (3b 16K)" in shown and "3e-5 or 5e-5" in shown
    assert run("tasks", "--results", "wikihop") == 0
    assert "Longformer" in capsys.readouterr().out


def test_finetune_leaves_a_checkpoint_logs_and_its_settings(trained: Path) -> None:
    [last, *_] = checkpoints(trained)
    assert last.name == "checkpoint-3" and damage(last) is None
    config = config_of(trained)
    assert config["task"] == "needle" and config["task_lengths"] == [100] and config["lr"] == 1e-3
    assert config["vcc"]["scales"] == [4, 1] and config["vcc"]["window_layers"] == 1
    assert list((trained / "tensorboard").iterdir())


def test_evaluate_prints_metrics_with_intervals_and_writes_every_answer(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(
            "evaluate",
            "needle",
            "--model",
            trained,
            "--lengths",
            "100",
            "--length",
            "40",
            "--examples",
            5,
            "--batch-size",
            2,
            "--device",
            "cpu",
            "--out",
            tmp_path,
        )
        == 0
    )
    shown = capsys.readouterr()
    assert "em" in shown.out and "95% interval" in shown.out
    assert "truncated: 5 of 5 (100.0%) examples, 300 of 500 (60.0%) tokens" in shown.err
    found = json.loads((tmp_path / "metrics.json").read_text())
    assert found["examples"] == 5 and {"em", "em_low", "em_high"} <= found["metrics"].keys()
    assert found["vcc"]["scales"] == [4, 1]  # as the model was saved
    lines = (tmp_path / "predictions.jsonl").read_text().splitlines()
    assert len(lines) == 5 and json.loads(lines[0])["answers"]


def test_the_same_command_runs_a_model_that_is_not_wrapped(bert: str, tmp_path: Path) -> None:
    short = ["--lengths", 60, "--length", 60, "--vcc", "false"]
    assert run("finetune", "needle", "--model", bert, "--out", tmp_path, *short, *FAST) == 0
    assert config_of(tmp_path)["vcc"] is None
    assert run("evaluate", "needle", "--model", tmp_path, "--examples", 2, *short, "--device", "cpu") == 0


def test_choices_are_learned_and_evaluated(bert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", small.stories(tmp_path), "--length", 50]
    assert (
        run("finetune", "quality", "--model", bert, "--out", tmp_path / "run", *data, *VCC, *FAST, "--max-choices", 2)
        == 0
    )
    assert run("evaluate", "quality", "--model", tmp_path / "run", *data, "--device", "cpu") == 0
    assert "accuracy" in capsys.readouterr().out


def test_text_is_learned_and_generated(t5: str, tmp_path: Path) -> None:
    needle = ["--lengths", 100, "--length", 100]
    assert (
        run(
            "finetune",
            "needle",
            "--model",
            t5,
            "--out",
            tmp_path,
            *needle,
            *VCC,
            *FAST,
            "--eval-every",
            2,
            "--eval-examples",
            2,
        )
        == 0
    )
    assert run("evaluate", "needle", "--model", tmp_path, *needle, "--examples", 3, "--device", "cpu") == 0
    assert config_of(tmp_path)["head"] == "text"


@pytest.mark.parametrize("kind", ["encoder", "encoder_decoder"])
def test_pretrain_fills_in_what_is_hidden(kind: str, bert: str, t5: str, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.mkdir()
    model = bert if kind == "encoder" else t5
    start = [
        "pretrain",
        small.books(text),
        "--model",
        model,
        "--out",
        tmp_path / "run",
        "--length",
        80,
        *VCC,
        *FAST,
        "--mask-ratio",
        "0.2",
        "--tokens-per-byte",
        "0.5",
    ]
    assert run(*start) == 0
    assert run(*start, "--resume") == 0  # finished already
    assert config_of(tmp_path / "run")["hiding"]["ratio"] == 0.2
