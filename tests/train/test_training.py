"""Training: what is resumed, counted, refused and said."""

import io
import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from tests.train import marked
from vcc.errors import Failure, UsageError
from vcc.tasks import TASKS
from vcc.train import busy, watch
from vcc.train.checkpoint import checkpoints
from vcc.train.clock import Clock
from vcc.train.draws import Stream
from vcc.train.memory import OutOfMemory, memory_advice
from vcc.train.run import Training, advice, cores, settle
from vcc.train.trainer import VccTrainer, head_names


def losses(checkpoint: Path) -> list[float]:
    history = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in history]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last checkpoint of a run that nobody touched."""
    return marked.train(tmp_path_factory.mktemp("whole"))


class Stopped(Exception):
    pass


def stop_after(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Die right after the checkpoint of this step."""
    save = VccTrainer._save_checkpoint

    def save_and_die(self: VccTrainer, *arguments: object) -> None:
        save(self, *arguments)
        if self.state.global_step == step:
            raise Stopped

    monkeypatch.setattr(VccTrainer, "_save_checkpoint", save_and_die)


def test_a_resumed_run_equals_an_untouched_one_bit_for_bit(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (3, 9):
        with monkeypatch.context() as patch, pytest.raises(Stopped):
            stop_after(patch, step)
            marked.train(tmp_path, resume=True)
    last = marked.train(tmp_path, resume=True)
    assert f"resuming from {tmp_path}/checkpoint-9" in capsys.readouterr().err
    assert (last / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert (last / "trainer_state.json").read_text() == (whole / "trainer_state.json").read_text()


def test_it_learns_and_shows_what_a_person_wants_to_see(
    whole: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert losses(whole)[-1] < losses(whole)[0]
    marked.train(tmp_path, steps=2)
    shown = capsys.readouterr().err
    for word in ("step 2/2", "loss", "lr", "tokens/s", "left", str(tmp_path / "checkpoint-2")):
        assert word in shown
    assert list((tmp_path / "tensorboard").glob("events.*"))
    config = json.loads((tmp_path / "run.json").read_text())
    assert config["steps"] == 2 and config["task"] == "marked" and config["lr"] == 3e-3


def test_only_the_newest_checkpoints_are_kept(whole: Path) -> None:
    assert [path.name for path in checkpoints(whole.parent)] == ["checkpoint-12", "checkpoint-9"]


def test_gradient_accumulation_does_not_change_the_run(tmp_path: Path) -> None:
    one = marked.train(tmp_path / "one", dropout=0.0)
    two = marked.train(tmp_path / "two", dropout=0.0, gradient_accumulation=2)
    torch.testing.assert_close(losses(one), losses(two), atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("options", [{"gradient_checkpointing": True}, {"workers": 1}], ids=str)
def test_how_it_is_computed_does_not_change_the_run(options: dict, whole: Path, tmp_path: Path) -> None:
    assert losses(marked.train(tmp_path, **options)) == losses(whole)


def test_it_runs_in_half_precision_too(whole: Path, tmp_path: Path) -> None:
    torch.testing.assert_close(losses(marked.train(tmp_path, precision="bf16")), losses(whole), atol=0.1, rtol=0)


def test_a_terminal_shows_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(watch, "console", Console(file=screen, force_terminal=True, width=120))
    marked.train(tmp_path, steps=4)
    shown = screen.getvalue()
    for word in ("4/4", "loss", "tokens/s", "left", "━"):
        assert word in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor comes back


def test_a_finished_run_resumes_to_itself(whole: Path) -> None:
    before = (whole / "model.safetensors").read_bytes()
    assert marked.train(whole.parent, resume=True) == whole
    assert (whole / "model.safetensors").read_bytes() == before


def test_a_folder_with_checkpoints_is_not_overwritten(whole: Path) -> None:
    with pytest.raises(UsageError, match="--resume"):
        marked.train(whole.parent)


def test_other_settings_do_not_continue_a_run(whole: Path) -> None:
    with pytest.raises(UsageError, match="lr is 0.003 there and 0.5 here"):
        marked.train(whole.parent, resume=True, lr=0.5)


def test_a_batch_that_does_not_divide_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--batch-size 4 must divide into 3"):
        marked.train(tmp_path, gradient_accumulation=3)


def test_time_is_a_budget_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = itertools.count()
    monkeypatch.setattr(Clock, "seconds", property(lambda clock: 0.1 * next(looks)))  # a tenth for every look at it
    last = marked.train(tmp_path, steps=100_000, minutes=0.05, save_every=1000)
    steps = int(last.name.removeprefix("checkpoint-"))
    assert 5 <= steps <= 31
    rates = [entry["learning_rate"] for entry in json.loads((last / "trainer_state.json").read_text())["log_history"]]
    assert rates[-1] < 0.35 * max(rates)


def test_a_loss_that_is_no_number_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="smaller --lr"):
        marked.train(tmp_path, lr=1e30, clip=0.0, warmup=0)


def test_settled_options_leave_nothing_open() -> None:
    settled = settle(Training(out=Path("x")), marked.Suggested(), 37)
    assert (settled.steps, settled.batch_size, settled.lr, settled.warmup) == (10, 4, 3e-3, 2)
    assert settled.precision in ("fp32", "bf16") and settled.weight_decay == 0.01
    assert settle(Training(out=Path("x"), steps=1000, warmup=0), marked.Suggested(), 37).warmup == 0
    with pytest.raises(UsageError, match="no training example"):
        settle(Training(out=Path("x")), marked.Suggested(), 0)


@pytest.mark.parametrize(("gpu", "one_length"), [(True, True), (True, False), (False, True)])
def test_a_gpu_gets_loaders_and_where_shapes_stay_the_same_the_compiler(
    gpu: bool, one_length: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    settled = settle(Training(out=Path("x")), marked.Suggested(), 37, one_length=one_length)
    assert settled.compile is (gpu and one_length) and (settled.workers > 0) is (gpu and cores() > 1)
    asked = settle(Training(out=Path("x"), compile=False, workers=3), marked.Suggested(), 37, one_length=True)
    assert asked.compile is False and asked.workers == 3
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert settle(Training(out=Path("x")), marked.Suggested(), 37, one_length=True).compile is False


def test_the_share_of_the_time_that_a_gpu_computes_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five steps of 2 s each of which the GPU computes 1.5 s, after twenty that are not measured."""
    now = [0.0]
    said: list[str] = []
    monkeypatch.setattr(busy, "profile", lambda **_: SimpleNamespace(start=lambda: None, stop=lambda: None))
    monkeypatch.setattr(busy, "gpu_seconds", lambda watched: 5 * 1.5)
    monkeypatch.setattr(busy.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    watch = busy.Busy(said.append)
    for step in range(7, 60):  # of a run that was resumed at step 7
        watch.on_step_begin(None, SimpleNamespace(global_step=step), None)
        now[0] += 2.0 if step >= 7 + busy.AFTER else 50.0
        watch.on_step_end(None, SimpleNamespace(global_step=step + 1), None)
    assert said == ["the GPU computes 75% of the time"]


@pytest.mark.parametrize(
    "options", [{"steps": 0}, {"lr": -1.0}, {"steps": 1, "epochs": 1.0}, {"seed": -1}, {"keep": 0}]
)
def test_impossible_options_are_errors(options: dict) -> None:
    with pytest.raises(ValueError, match="--"):
        Training(out=Path("x"), **options)


def test_out_of_memory_says_what_did_not_fit_and_what_to_try() -> None:
    training = settle(Training(out=Path("x"), batch_size=8, gradient_accumulation=2), marked.Suggested(), 37)
    with pytest.raises(OutOfMemory) as error, memory_advice(lambda: advice(training, 4096)):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
    for part in (
        "length 4096",
        "4 examples at a time",
        "--gradient-accumulation 4",
        "--gradient-checkpointing",
        "--length 2048",
    ):
        assert part in str(error.value)
    with pytest.raises(RuntimeError, match="^shapes"), memory_advice(lambda: advice(training, 4096)):
        raise RuntimeError("shapes do not match")


def test_out_of_memory_names_the_length_of_the_batch_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(marked.Find, "loss", full)
    with pytest.raises(OutOfMemory, match=f"length {marked.LENGTH} with 4 examples at a time did not fit"):
        marked.train(tmp_path)


def test_the_stream_visits_every_example_once_an_epoch_in_a_new_order() -> None:
    draws = list(Stream(examples=7, draws=17, seed=3))
    assert sorted(draws[:7]) == list(range(7)) and sorted(draws[7:14]) == list(range(7, 14)) and len(draws) == 17
    assert [d - 7 for d in draws[7:14]] != draws[:7]
    assert draws == list(Stream(7, 17, 3)) and draws[:10] == list(Stream(7, 10, 3))
    assert draws[:7] != list(Stream(7, 7, 4))


def test_the_head_is_what_the_base_model_does_not_have() -> None:
    assert head_names(marked.model()) == {"qa_outputs.weight", "qa_outputs.bias"}


def test_a_clock_without_a_budget_never_ends_a_run() -> None:
    clock = Clock(None)
    assert not clock.tick() and clock.share == 0


@pytest.mark.parametrize(("task", "examples", "warmup"), [("qmsum", 1257, 100), ("contract_nli", 7191, 1000)])
def test_warm_up_is_the_papers_however_few_the_steps(
    task: str, examples: int, warmup: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tenth of QMSum's 786 steps would be 78, of ContractNLI's 4,495 it would be 449."""
    recipe = TASKS[task]().recipe()
    assert settle(Training(out=Path("x")), recipe, examples).warmup == warmup
    assert not capsys.readouterr().err
    assert settle(Training(out=Path("x"), steps=50), recipe, examples).warmup == warmup
    assert f"warm-up of {warmup:,} steps is longer than the run, of 50" in capsys.readouterr().err
