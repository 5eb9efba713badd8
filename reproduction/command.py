"""Reproduce the paper's tables and figures."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from reproduction.experiment import Scale, Workspace, plan, run_steps, unique
from reproduction.registry import EXPERIMENTS
from reproduction.report import write
from reproduction.small.pack import pack as pack_data
from reproduction.small.settings import Small, settle
from vcc.errors import UsageError


def reproduce(
    name: Annotated[str, "of " + ", ".join(EXPERIMENTS) + "; several with commas between, or all"],
    scale: Annotated[Scale, "small: one small checkpoint, minutes; paper: the full protocol, weeks"] = "small",
    out: Annotated[Path, "folder of everything that is made; tables and figures share models in it"] = Path(
        "out/reproduce"
    ),
    run: Annotated[bool, "do it; otherwise say what would be done, how long it takes and what is missing"] = False,
    minutes: Annotated[float | None, "stop after so many; the same command goes on"] = None,
    data: Annotated[str | None, "folder of data sets; unless given, paper scale takes the hub's"] = None,
    model: Annotated[str, "encoder to start from: BERT or RoBERTa, a folder or hub name"] = "",
    t5: Annotated[str, "encoder-decoder to start from"] = "",
    text: Annotated[str, "corpus of continued pretraining at paper scale; unless given, a copy of The Pile"] = "",
    pack: Annotated[bool, "only gather --data and --model into OUT/packed, to be carried elsewhere"] = False,
    pack_megabytes: Annotated[float, "of compressed text in it"] = 6.0,
    **given: Annotated[Any, Small],
) -> None:
    """Reproduce tables and figures of the paper: Markdown, JSON and a picture each, the paper's numbers beside ours.

    Everything is resumable: what is done stays, and the same command goes on.
    """
    names = list(EXPERIMENTS) if name == "all" else list(dict.fromkeys(name.split(",")))
    for one in names:
        if one not in EXPERIMENTS:
            raise UsageError(f"{one!r} must be one of {', '.join(EXPERIMENTS)}, several of them with commas, or all")
    if scale == "paper" and given:
        named = ", ".join(f"--{one.replace('_', '-')}" for one in sorted(given))
        raise UsageError(f"--scale paper leaves no use for {named}: the protocol is the paper's")
    console = Console(highlight=False, soft_wrap=True)
    small = replace(Small(), **given)
    experiments = [EXPERIMENTS[one]() for one in names]
    place = Workspace(scale, out, data, model, t5, text, small)
    if pack:
        if data is None or not model:
            raise UsageError("--pack needs --data and --model")
        pack_data(Path(data), model, place.packed, small.tasks, pack_megabytes)
        size = sum(file.stat().st_size for file in place.packed.rglob("*") if file.is_file()) / 2**20
        console.print(f"{place.packed}: {size:.1f} MiB", markup=False)
        return
    steps = unique(step for experiment in experiments for step in experiment.steps(place))
    for experiment in experiments:
        console.print(f"{experiment.name}: {experiment.title}\nThe paper: {experiment.claim}", markup=False)
    console.print(plan(steps), markup=False)

    def report() -> list[Path]:
        return [file for experiment in experiments for file in write(experiment.report(place), out / "reports")]

    if run:
        if scale == "small":
            settle(out, small)
        together = small.together if scale == "small" else 1
        run_steps(steps, together, minutes, lambda told: console.print(told, markup=False), report)
    else:
        console.print("Nothing was done: --run does it.", markup=False)
    for file in report():
        console.print(f"written: {file}", markup=False)
