"""Every table and figure plans at both scales, has the paper's numbers, and goes on from where it was stopped."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from reproduction.experiment import ProcessStep, Workspace, plan, run_steps
from reproduction.registry import EXPERIMENTS
from reproduction.report import write
from tests.reproduction import tiny
from vcc.cli import main
from vcc.errors import Failure, UsageError

ONE_NUMBER_OF_EACH = {
    "table1": "203.5", "table2": "1,930.7", "table3": "6,267.8", "table5": "260,533", "table6": "60.7",
    "table7": "721.7", "figure1": "422.3", "figure5": "76.1", "figure8": "75.2", "cuad": "56.1",
    "tasks": "65,536", "a5": "future work",
}  # fmt: skip


def place(scale: str, out: Path, data: str | None = None) -> Workspace:
    return Workspace(scale, out, data, "", "", "", tiny.SMALL)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_plans_say_what_is_missing_and_reports_have_the_papers_numbers(name: str, scale: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name]()
    at = place(scale, tmp_path)
    steps = experiment.steps(at)
    assert len({step.done for step in steps}) == len(steps)
    assert "missing: " in plan(steps) or not any(step.missing for step in steps)
    report = experiment.report(at)
    assert ONE_NUMBER_OF_EACH[name] in report.markdown()
    written = write(report, tmp_path)
    assert {file.suffix for file in written} >= {".md", ".json"}
    assert json.loads((tmp_path / f"{experiment.name.replace(' ', '-')}.json").read_text())["claim"]


def test_paper_scale_is_the_published_grid(tmp_path: Path) -> None:
    steps = EXPERIMENTS["table1"]().steps(place("paper", tmp_path))
    lines = [step.shown for step in steps]
    tuned = [line for line in lines if line.startswith("vcc finetune quality") and "encoder-mra-base" in line]
    assert len(tuned) == 4 and any("--lr 5e-05" in line and "--epochs 20" in line for line in tuned)
    pretrained = [line for line in lines if line.startswith("vcc pretrain")]
    assert {line.split("--preset ")[1].split()[0] for line in pretrained} == {"vcc", "vcc-star", "baseline"}
    assert sum("--preset baseline" in line for line in pretrained) == 4
    assert not any("pretrain" in line and "-512" in line for line in lines)  # at 512 tokens RoBERTa is taken as it is


def test_who_is_compared_can_be_chosen(tmp_path: Path) -> None:
    def shown(name: str, *models: str) -> str:
        at = replace(place("small", tmp_path), small=replace(tiny.SMALL, models=models))
        return "\n".join(step.shown for step in EXPERIMENTS[name]().steps(at))

    assert "tune vcc-open squad_haystack" in shown("figure5", "vcc-open", "mra")
    assert "tune vcc-open squad_haystack h10" in shown("figure5", "vcc-open", "mra")
    assert "longformer" not in shown("figure5", "vcc-open", "mra") and "longformer" in shown("figure5")
    with pytest.raises(UsageError, match="must have one of vcc, longformer"):
        shown("figure5", "dense-512")
    lengths = shown("table3", "vcc-more", "longformer", "mra", "dense-512")
    assert "score vcc-more cuad 512" in lengths  # four times what it was tuned with
    assert "score longformer cuad 512" in lengths
    assert "score mra cuad 128" in lengths and "score mra cuad 256" not in lengths
    assert "score dense-512 cuad 32" in lengths and "score dense-512 cuad 64" not in lengths


def test_experiments_share_a_folder_and_ignore_each_others_names(tmp_path: Path) -> None:
    """One command runs several: each takes its own models and tasks, all read what was packed together."""
    models, tasks = ("vcc", "vcc-t5", "dense"), ("hotpotqa", "qmsum", "fairytale_choices")
    at = replace(place("small", tmp_path), small=replace(tiny.SMALL, models=models, tasks=tasks))
    names = ("table1", "table3", "figure5", "table2", "a5")
    steps = {name: EXPERIMENTS[name]().steps(at) for name in names}
    tuned = {name: [step.shown for step in some if " tune " in step.shown] for name, some in steps.items()}
    every = [f"small tune {model} {task}" for task in ("hotpotqa", "fairytale_choices") for model in ("vcc", "dense")]
    assert tuned["table1"] == every
    assert tuned["table2"] == ["small tune vcc-t5 qmsum"]
    assert [step.shown for step in steps["a5"]][2:] == ["a5 go_on vcc", "a5 go_on dense"]
    together = [step for some in steps.values() for step in some]
    assert {step.command[3] for step in together} == {str(at.packed)}
    files: dict[Path, set[str]] = {}
    for step in together:
        files.setdefault(step.done, set()).add(step.shown)
    assert all(len(shown) == 1 for file, shown in files.items() if "times" not in file.parts), "no two write one file"


@pytest.mark.parametrize("option, name", [("--models", "longfromer"), ("--tasks", "hotpot")])
def test_names_that_nobody_knows_are_refused(
    option: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    several = f"vcc,{name}" if option == "--models" else name
    assert main(["reproduce", "table1,a5", "--out", str(tmp_path), option, several]) == 2
    assert f"{option} {name}: it must be one of" in capsys.readouterr().err


def writes(folder: Path, name: str, *needs: str, code: str = "pass", alone: bool = False) -> ProcessStep:
    """A step that leaves a file of its name."""
    body = f"import pathlib, time; {code}; pathlib.Path({str(folder / name)!r}).write_text('x')"
    files = tuple(folder / need for need in needs)
    return ProcessStep(name, (sys.executable, "-c", body), folder / name, 1.0, files, alone)


def test_steps_begin_when_what_they_need_is_there_and_run_only_once(tmp_path: Path) -> None:
    broken = writes(tmp_path, "c", "b", code="raise SystemExit('no paper left')")
    steps = [writes(tmp_path, "d", "c"), writes(tmp_path, "b", "a"), writes(tmp_path, "a"), broken]
    said: list[str] = []
    with pytest.raises(Failure, match="1 steps failed, and 1 that need them were not begun"):
        run_steps(steps, 2, None, said.append, lambda: None)
    assert [line for line in said if line.startswith("done")] == ["done: a", "done: b"]
    assert any("no paper left" in line for line in said)
    said.clear()
    assert run_steps([*steps[:3], writes(tmp_path, "c", "b")], 2, None, said.append, lambda: None)
    assert said == ["starts: c", "done: c", "starts: d", "done: d"]


def test_nobody_waits_for_those_it_does_not_need_and_the_lonely_one_waits_for_all(tmp_path: Path) -> None:
    wait = f"[time.sleep(0.05) for _ in range(600) if not pathlib.Path({str(tmp_path / 'third')!r}).exists()]"
    steps = [
        writes(tmp_path, "clock", "first", alone=True),
        writes(tmp_path, "slow", code=wait),  # ends when the third of the others is done
        writes(tmp_path, "first"),
        writes(tmp_path, "second", "first"),
        writes(tmp_path, "third", "second"),
    ]
    said: list[str] = []
    assert run_steps(steps, 2, None, said.append, lambda: None)
    assert said.index("starts: third") < said.index("done: slow")
    assert said[-2:] == ["starts: clock", "done: clock"]


def test_what_finds_no_memory_beside_others_goes_on_alone(tmp_path: Path) -> None:
    full = "class OutOfMemoryError(Exception): pass\nraise OutOfMemoryError"
    beside = f"if not pathlib.Path({str(tmp_path / 'other')!r}).exists(): time.sleep(0.5); exec({full!r})"
    greedy = writes(tmp_path, "greedy", code=f"exec({beside!r})")
    said: list[str] = []
    other = writes(tmp_path, "other", code="time.sleep(3)")
    assert run_steps([greedy, other], 2, None, said.append, lambda: None)
    assert said[2].startswith("out of memory beside others: greedy")
    assert said[3:] == ["done: other", "starts: greedy", "done: greedy"]
    said.clear()
    always = writes(tmp_path, "always", code=f"exec({full!r})")
    with pytest.raises(Failure, match="1 steps failed"):
        run_steps([always], 2, None, said.append, lambda: None)
    assert [line.partition(":")[0] for line in said] == ["starts", "out of memory beside others", "starts", "failed"]


def test_time_that_is_up_stops_what_runs(tmp_path: Path) -> None:
    slow = ProcessStep("slow", (sys.executable, "-c", "import time; time.sleep(600)"), tmp_path / "never", 1.0)
    said: list[str] = []
    assert not run_steps([slow], 1, 0.005, said.append, lambda: None)
    assert "the time is up with 1 steps" in said[-1]


def test_the_command_says_what_it_would_do_and_refuses_what_has_no_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "table1", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "small pretrain mra" in out and "missing: " in out and "Nothing was run" in out
    assert main(["reproduce", "table1", "--out", str(tmp_path), "--scale", "paper", "--tune-steps", "3"]) == 2
    assert main(["reproduce", "table9"]) == 2
    assert main(["reproduce", "table1,table9"]) == 2
    assert "'table9' must be one of" in capsys.readouterr().err


def test_several_are_one_plan_and_share_what_they_need(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "table1,table3", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.count("small pretrain vcc\n") == 1 and "table 1: " in out and "table 3: " in out
    assert "small tune mra fairytaleqa" in out and "small score vcc cuad 16384" in out
    assert {file.name for file in (tmp_path / "reports").iterdir()} >= {"table-1.md", "table-3.md"}
    assert main(["reproduce", "all", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert all(f"{one().name}: " in out for one in EXPERIMENTS.values())


@pytest.mark.slow
def test_table_one_from_a_folder_of_data_to_its_report(tmp_path: Path) -> None:
    tiny.model(tmp_path / "model")
    tiny.data(tmp_path / "data")
    common = ["--out", str(tmp_path / "out"), "--tasks", "fairytaleqa", "--length", "128"]
    made = ["--data", str(tmp_path / "data"), "--model", str(tmp_path / "model"), "--pack", "true"]
    assert main(["reproduce", "table1", *common, *made]) == 0
    tiny_steps = ["--short", "32", "--start-steps", "2", "--pretrain-steps", "2", "--batch", "4"]
    tiny_steps += ["--answer-steps", "1", "--tune-steps", "2"]
    tiny_steps += ["--at-once", "2", "--examples", "4", "--together", "2", "--device", "cpu", "--loaders", "0"]
    tiny_steps += ["--models", "vcc,mra"]
    assert main(["reproduce", "table1", *common, *tiny_steps, "--run"]) == 0
    found = json.loads((tmp_path / "out" / "reports" / "table-1.json").read_text())
    rows = {row[0]: row[1:] for row in found["tables"][0]["rows"]}
    columns = found["tables"][0]["columns"][1:]
    assert rows.keys() == {"vcc", "mra"}
    for row in rows.values():
        cells = dict(zip(columns, row, strict=True))
        assert cells["fairytaleqa f1"] and cells["paragraph alone, f1"] is not None and cells["steps on tasks"] == "2"
