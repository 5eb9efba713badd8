"""`vcc bench`: our models beside the others, in one run, on the machine at hand."""

import os
import platform
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import transformers
from rich.console import Console

from vcc.bench import report as report
from vcc.bench.contenders import CONTENDERS
from vcc.bench.measure import Cell, Settings
from vcc.bench.stages import Profile, measure_and_profile
from vcc.bench.workers import Job, Outcome, wave
from vcc.errors import UsageError

PEERS = ("t5", "longt5-global", "led", "longformer", "bigbird", "modernbert")
PRESETS = {
    "gpu": Settings(("vcc-roberta", "vcc-t5", "roberta", *PEERS), (4096, 16384, 131072), "base", "bf16", "cuda", True),
    "cpu": Settings(("vcc-bert", "bert", *PEERS), (1024, 4096, 32768), "minilm", "fp32", "cpu", False),
}
WIDTH = 200  # a terminal that is narrower wraps lines; a table squeezed into 80 columns cannot be read


def bench(
    preset: Annotated[Literal["gpu", "cpu"] | None, "defaults of the rest; by whether there is a GPU"] = None,
    models: Annotated[tuple[str, ...] | None, "of " + ", ".join(CONTENDERS)] = None,
    lengths: Annotated[tuple[int, ...] | None, "in tokens"] = None,
    size: Annotated[Literal["base", "minilm", "tiny"] | None, "of every model"] = None,
    precision: Annotated[Literal["fp32", "bf16", "autocast"] | None, "bf16: of the weights too"] = None,
    training: Annotated[bool | None, "time forward + backward as well"] = None,
    batch: Annotated[int | None, "sequences at once"] = None,
    ragged: Annotated[float | None, "0.5: the last sequence is half as long as the first"] = None,
    dropout: Annotated[float | None, "of every model, in training"] = None,
    checkpointing: Annotated[bool | None, "recompute layers in the backward pass"] = None,
    compile: Annotated[Literal["none", "ours", "all"] | None, "vcc.compile and, for the others, torch.compile"] = None,
    limit: Annotated[float | None, "seconds; skip what would take longer if time grew as length squared"] = None,
    profile: Annotated[bool, "say where the time of our models goes, and that of compiled ones by kernel"] = False,
    workers: Annotated[int | None, "processes that compile at once; each is timed while the others wait"] = None,
    patience: Annotated[float | None, "seconds a worker may take to be prepared, and again to be timed"] = None,
    threads: Annotated[int | None, "of the CPU"] = None,
    out: Annotated[Path, "folder for bench.json and bench.png"] = Path("out/bench"),
    markdown: Annotated[bool, "print Markdown"] = False,
    show: Annotated[Path | None, "measure nothing; show this bench.json of an earlier run"] = None,
) -> report.Run:
    """Time our models beside Hugging Face's long-document models: forward, training and memory, over lengths."""
    console = Console(width=WIDTH, soft_wrap=True)
    if show is not None:
        return printed(report.load(show), console, markdown)
    if threads is not None:
        torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()  # the others say that they pad their input, in every cell
    given = {key: value for key, value in locals().items() if key in Settings.__annotations__ and value is not None}
    settings = replace(PRESETS[preset or ("gpu" if torch.cuda.is_available() else "cpu")], **given)
    check(settings)
    out.mkdir(parents=True, exist_ok=True)
    run = report.Run(machine(settings.device), versions(), settings)
    with closing(outcomes(settings)) as found:
        for cell, stages in found:
            run = replace(run, cells=(*run.cells, cell))
            if isinstance(stages, Profile):
                run = replace(run, profiles=(*run.profiles, stages))
            report.save(run, out / "bench.json")  # after every cell, so that nothing measured is lost
            console.print(f"{cell.length:,} {cell.model} {cell.mode}: {report.shown_time(cell)}", style="dim")
            if isinstance(stages, str):
                console.print(f"{cell.length:,} {cell.model} {cell.mode}: no profile: {stages}", style="dim")
    if find_spec("matplotlib"):
        report.plot(run, out / "bench.png")
    else:
        console.print("no bench.png: matplotlib is not installed (pip install 'vcc-transformers[bench]')")
    return printed(run, console, markdown)


def check(settings: Settings) -> None:
    unknown = [model for model in settings.models if model not in CONTENDERS]
    if unknown:
        raise UsageError(f"models={','.join(unknown)}: they must be of {', '.join(CONTENDERS)}")
    if min(settings.lengths, default=0) < 32 or settings.batch < 1 or not 0 <= settings.ragged < 1:
        raise UsageError(
            f"lengths={settings.lengths}, batch={settings.batch}, ragged={settings.ragged}: lengths are at least 32 "
            "tokens, a batch is at least 1 sequence, and ragged is at least 0 and less than 1"
        )
    if settings.workers < 1 or settings.patience <= 0:
        raise UsageError(
            f"workers={settings.workers}, patience={settings.patience}: at least 1 worker, and more than 0 seconds"
        )
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("preset=gpu: PyTorch finds no CUDA GPU on this machine; --preset cpu runs without one")


def outcomes(settings: Settings) -> Generator[Outcome, None, None]:
    """Every cell, in this process or in waves of workers, the short lengths first where they are given first."""
    modes = ("forward", "training") if settings.training else ("forward",)
    jobs = [Job(model, length, mode) for length in settings.lengths for model in settings.models for mode in modes]
    done: list[Cell] = []
    while jobs:
        now: list[Job] = []
        # With a limit, a wave has one length: what it takes must be known before a longer one is let in.
        while jobs and len(now) < settings.workers:
            if settings.limit is not None and now and now[0].length != jobs[0].length:
                break
            job = jobs.pop(0)
            if placeholder := skipped(job, done, settings.limit):
                yield placeholder, None
            else:
                now.append(job)
        here = (measure_and_profile(*job, settings) for job in now)
        for outcome in wave(now, settings) if settings.workers > 1 else here:
            done.append(outcome[0])
            yield outcome


def skipped(job: Job, done: list[Cell], limit: float | None) -> Cell | None:
    """The place holder of a cell that shorter ones of the same model predict to take longer than the limit, if any."""
    before = [cell for cell in done if (cell.model, cell.mode) == (job.model, job.mode) and cell.length < job.length]
    seconds = max(((cell.ms or 0) / 1e3 * (job.length / cell.length) ** 2 for cell in before), default=0.0)
    return None if limit is None or seconds <= limit else Cell(*job, f"skipped: {seconds:.0f} s predicted")


def printed(run: report.Run, console: Console, markdown: bool) -> report.Run:
    for part in [report.markdown(run)] if markdown else [*report.describe(run), *report.tables(run)]:
        console.print(part, markup=False, highlight=False)
    return run


def machine(device: str) -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpu = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())
    found: dict[str, Any] = {"cpu": cpu, "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    if device == "cuda":
        gpu = torch.cuda.get_device_properties(0)
        found |= {"gpu": gpu.name, "gpu_gib": round(gpu.total_memory / 2**30, 1)}
    return found


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__}
    return found | {"vcc": version("vcc-transformers"), "cuda": torch.version.cuda or "none"}
