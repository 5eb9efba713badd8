"""Reproduce the paper's tables and figures."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from reproduction.experiment import Scale, Workspace, plan, run_steps, unique
from reproduction.registry import EXPERIMENTS
from reproduction.report import write
from reproduction.small.parts import cut_into_parts
from reproduction.small.prefix import PREFIX_READERS
from reproduction.small.settings import TABLE1, Small, settle
from reproduction.small.variants import VARIANTS
from reproduction.small.writers import WRITERS
from reproduction.tasks.specs import LONG_TASKS, WAYS
from vcc.errors import UsageError
from vcc.tasks import TASKS


def reproduce(
    name: Annotated[str, "one of " + ", ".join(EXPERIMENTS) + "; several with commas, or all"],
    scale: Annotated[Scale, "small: one small checkpoint, minutes; paper: the full protocol, weeks"] = "small",
    out: Annotated[Path, "output folder; tables and figures share models in it"] = Path("out/reproduce"),
    run: Annotated[bool, "run it; otherwise print the plan, its time and what is missing"] = False,
    minutes: Annotated[float | None, "stop after this many; the same command continues"] = None,
    data: Annotated[str | None, "folder of data sets (default at paper scale: the hub's)"] = None,
    model: Annotated[str, "encoder to start from: BERT or RoBERTa, a folder or hub name"] = "",
    t5: Annotated[str, "T5 to start from, a folder or hub name; a folder with its vocabulary alone: train one"] = "",
    text: Annotated[str, "corpus of continued pretraining at paper scale (default: a copy of The Pile)"] = "",
    pack: Annotated[bool, "only pack --data and --model (or --t5) into OUT/packed, for another machine"] = False,
    pack_parts: Annotated[
        bool, "also cut OUT/packed into OUT/parts of at most 40 MiB; cat parts/part-* | tar -x"
    ] = False,
    pack_megabytes: Annotated[float, "text in the pack, a million tokens each; none if nothing is pretrained"] = 80.0,
    **given: Annotated[Any, Small],
) -> None:
    """Reproduce the paper's tables and figures as Markdown, JSON and pictures, with the paper's numbers beside ours.

    Runs are resumable: the same command continues.
    """
    names = list(EXPERIMENTS) if name == "all" else list(dict.fromkeys(name.split(",")))
    for one in names:
        if one not in EXPERIMENTS:
            raise UsageError(f"{one!r} must be one of {', '.join(EXPERIMENTS)}, several of them with commas, or all")
    if scale == "paper" and given:
        named = ", ".join(f"--{one.replace('_', '-')}" for one in sorted(given))
        raise UsageError(f"--scale paper cannot be combined with {named}: the protocol is the paper's")
    check_names(small := replace(Small(), **given))
    console = Console(highlight=False, soft_wrap=True)
    experiments = [EXPERIMENTS[one]() for one in names]
    place = Workspace(scale, out, data, model, t5, text, small)
    if pack:
        if data is None:
            raise UsageError("--pack needs --data")
        megabytes = pack_megabytes if any(one.reads_text(place) for one in experiments) else 0.0
        for experiment in {type(one).pack: one for one in experiments}.values():  # those that pack alike, once
            experiment.pack(place, megabytes)
        size = sum(file.stat().st_size for file in place.packed.rglob("*") if file.is_file()) / 2**20
        console.print(f"{place.packed}: {size:.1f} MiB", markup=False)
        if pack_parts:
            console.print(
                f"{len(cut_into_parts(place.packed))} parts in {place.packed.with_name('parts')}", markup=False
            )
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
        console.print("Nothing was run: use --run true.", markup=False)
    for file in report():
        console.print(f"written: {file}", markup=False)


def check_names(small: Small) -> None:
    """Raise if no experiment knows a model or a task; each ignores those of the others."""
    known = {"models": {*VARIANTS, *WRITERS, *PREFIX_READERS, *WAYS}, "tasks": {*TABLE1, *TASKS, *LONG_TASKS}}
    for option, names in known.items():
        for name in getattr(small, option):
            if name not in names:
                raise UsageError(f"--{option} {name}: it must be one of {', '.join(sorted(names))}")
