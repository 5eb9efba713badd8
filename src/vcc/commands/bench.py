"""`vcc bench`: time VCC and other long-document models on this machine."""

from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import transformers
from rich.console import Console

from vcc.bench import report
from vcc.bench.cells import outcomes
from vcc.bench.settings import PRESETS, BenchSettings, check
from vcc.bench.stages import Profile

WIDTH = 200  # wide tables wrap in a narrow terminal; squeezed into 80 columns they are unreadable


def bench(
    preset: Annotated[Literal["gpu", "cpu"] | None, "set of defaults (default: gpu if there is one)"] = None,
    threads: Annotated[int | None, "CPU threads"] = None,
    out: Annotated[Path, "output folder for bench.json and bench.png"] = Path("out/bench"),
    markdown: Annotated[bool, "print tables as Markdown"] = False,
    show: Annotated[Path | None, "show a bench.json of an earlier run instead of measuring"] = None,
    **given: Annotated[Any, BenchSettings],
) -> report.Run:
    """Measure time and memory of VCC and other long-document models, for inference and training, by input length."""
    console = Console(width=WIDTH, soft_wrap=True)
    if show is not None:
        return printed(report.load(show), console, markdown)
    if threads is not None:
        torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()  # other models warn about padding in every cell
    settings = replace(PRESETS[preset or ("gpu" if torch.cuda.is_available() else "cpu")], **given)
    check(settings)
    out.mkdir(parents=True, exist_ok=True)
    run = report.Run(report.machine(settings.device), report.versions(), settings)
    with closing(outcomes(settings)) as found:
        for cell, stages in found:
            run = replace(run, cells=(*run.cells, cell))
            if isinstance(stages, Profile):
                run = replace(run, profiles=(*run.profiles, stages))
            report.save(run, out / "bench.json")  # after every cell: nothing measured is lost
            console.print(f"{cell.length:,} {cell.model} {cell.mode}: {report.shown_time(cell)}", style="dim")
            if isinstance(stages, str):
                console.print(f"{cell.length:,} {cell.model} {cell.mode}: no profile: {stages}", style="dim")
    if find_spec("matplotlib"):
        report.plot(run, out / "bench.png")
    else:
        console.print("no bench.png: matplotlib is not installed (pip install 'vcc-transformers[bench]')")
    return printed(run, console, markdown)


def printed(run: report.Run, console: Console, markdown: bool) -> report.Run:
    for part in [report.markdown(run)] if markdown else [*report.describe(run), *report.tables(run)]:
        console.print(part, markup=False, highlight=False)
    return run
