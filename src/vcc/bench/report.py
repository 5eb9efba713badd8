"""The results of a benchmark: JSON, tables in the terminal or in Markdown, and a picture."""

import json
import math
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import transformers
from rich.table import Table

from vcc.bench.contenders import DENSE, OURS
from vcc.bench.kernels import Kernel
from vcc.bench.measure import OUT_OF_MEMORY, BenchCell
from vcc.bench.settings import BenchSettings
from vcc.bench.stages import Profile
from vcc.files import write_whole
from vcc.version import __version__

COLUMNS = ["model", "attention", "forward ms", "x dense", "training ms", "x dense", "forward GiB", "training GiB"]
COLUMNS += ["tokens/s", "first call s"]
BATCH_COLUMNS = ["batch", "ms per sequence"]  # for batches: forward / training
NAME = 110  # characters of a kernel's name
COLORS = ("#c1121f", "#f77f00", "#9d4edd", "#0a9396")  # ours; the others are grey, a dense one darker


@dataclass(frozen=True)
class Run:
    """One run of the benchmark, with all that is needed to repeat it."""

    machine: dict[str, Any]
    versions: dict[str, str]
    settings: BenchSettings
    cells: tuple[BenchCell, ...] = ()
    profiles: tuple[Profile, ...] = ()

    def find(self, model: str, length: int, mode: str) -> BenchCell | None:
        return next((c for c in self.cells if (c.model, c.length, c.mode) == (model, length, mode)), None)

    def ratio(self, cell: BenchCell | None) -> float | None:
        """How many times faster than the dense model of the same run."""
        dense = next((name for name in DENSE if name in self.settings.models), "")
        other = self.find(dense, cell.length, cell.mode) if cell else None
        return other.ms / cell.ms if cell and cell.ms and other and other.ms else None


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
    return found | {"vcc": __version__, "cuda": torch.version.cuda or "none"}


def save(run: Run, path: Path) -> None:
    write_whole(path, json.dumps(asdict(run), indent=1) + "\n")


def load(path: Path) -> Run:
    run = json.loads(path.read_text(encoding="utf-8"))
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in run["settings"].items()}
    settings = BenchSettings(**given)
    kernels = [tuple(Kernel(**kernel) for kernel in cell.get("kernels", ())) for cell in run["cells"]]
    cells = tuple(BenchCell(**{**cell, "kernels": own}) for cell, own in zip(run["cells"], kernels, strict=True))
    profiles = tuple(Profile(**found) for found in run["profiles"])
    return Run(run["machine"], run["versions"], settings, cells, profiles)


# -------------------------------------------------------------------------------------------------------------- tables


def sections(run: Run) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, columns and lines of every table: one per length, then stages and kernels of every profile."""
    what = "; ms of the graph (of a single call)" if run.settings.device == "cuda" else ""
    columns = COLUMNS + (BATCH_COLUMNS if batched(run) else [])
    of = "" if run.settings.part == "encoder" else f", {run.settings.part} of encoder-decoders"
    found = [(f"{length:,} tokens{of}{what}", columns, cell_lines(run, length)) for length in run.settings.lengths]
    why = "" if run.settings.compile == "none" else ": stages cannot be told apart in a compiled graph"
    for part in run.profiles:
        title = f"{part.model}, {part.length:,} tokens, {part.mode}: {part.total_ms:,.1f} ms, uncompiled{why}"
        lines = [[stage, f"{ms:,.2f}", f"{ms / part.total_ms:.0%}"] for stage, ms in part.stages_ms.items()]
        found.append((title, ["stage", "ms", "share"], lines))
    for cell in run.cells:
        total = sum(kernel.ms for kernel in cell.kernels)
        title = f"{cell.model}, {cell.length:,} tokens, {cell.mode}: {shown_time(cell)} ms, compiled; "
        title += f"in {'GPU kernels' if run.settings.device == 'cuda' else 'operations'} {total:,.1f} ms"
        lines = [[k.name[:NAME], str(k.calls), f"{k.ms:,.2f}", f"{k.ms / (total or 1):.0%}"] for k in cell.kernels]
        found.append((title, ["kernel", "calls", "ms", "share"], lines))
    return [section for section in found if section[2]]


def cell_lines(run: Run, length: int) -> list[list[str]]:
    lines = []
    for model in run.settings.models:
        cells = [run.find(model, length, mode) for mode in ("forward", "training")]
        if cells[0] is None:
            continue
        timed = [text for cell in cells for text in (shown_time(cell), shown(run.ratio(cell)))]
        speed = f"{cells[0].tokens / cells[0].ms * 1e3:,.0f}" if cells[0].ms else ""
        first = shown(max((cell.first_s for cell in cells if cell and cell.first_s), default=None))
        memory = [shown(cell.gib if cell else None) for cell in cells]
        several = [" / ".join(both(cells, field)) for field in ("batch", "sequence_ms")] if batched(run) else []
        lines.append([model, cells[0].attention, *timed, *memory, speed, first, *several])
    return lines


def batched(run: Run) -> bool:
    return run.settings.fit or run.settings.batch > 1


def both(cells: list[BenchCell | None], field: str) -> list[str]:
    """A field of the forward and the training cell, if measured."""
    found = [getattr(cell, field) for cell in cells if cell is not None and cell.ms is not None]
    return [str(value) if isinstance(value, int) else shown(value) for value in found]


def shown_time(cell: BenchCell | None) -> str:
    """The graph's time and, if single calls were timed separately, the call's."""
    if cell is None or cell.ms is None:
        return "" if cell is None else cell.outcome
    apart = cell.call_ms is not None and cell.call_ms != cell.ms
    return f"{shown(cell.ms)} ({shown(cell.call_ms)})" if apart else shown(cell.ms)


def shown(number: float | None) -> str:
    return "" if number is None else f"{number:,.{1 if number >= 10 else 2}f}"


def describe(run: Run) -> list[str]:
    """Machine, versions and settings, one line each."""
    chosen = {k: v for k, v in asdict(run.settings).items() if k not in ("models", "lengths") and v is not None}
    parts = (run.machine, run.versions, chosen)
    return [", ".join(f"{key} {value}" for key, value in part.items()) for part in parts]


def tables(run: Run) -> list[Table]:
    made = []
    for title, columns, lines in sections(run):
        table = Table(title=title, box=None, title_justify="left")
        for column in columns:
            table.add_column(column, no_wrap=True, justify="right" if is_number(column) else "left")
        for line in lines:
            table.add_row(*line, style="bold" if line[0] in OURS else "")
        made.append(table)
    return made


def markdown(run: Run) -> str:
    parts = ["\n".join(f"- {line}" for line in describe(run))]
    for title, columns, lines in sections(run):
        if columns[0] == "kernel":  # names with < and > in them
            lines = [[f"`{name}`", *numbers] for name, *numbers in lines]
        rule = ["---:" if is_number(column) else "---" for column in columns]
        parts.append("\n".join([f"**{title}**", "", *(f"| {' | '.join(line)} |" for line in (columns, rule, *lines))]))
    return "\n\n".join(parts)


def is_number(column: str) -> bool:
    return column not in ("model", "attention", "stage", "kernel")


# ------------------------------------------------------------------------------------------------------------- picture


def plot(run: Run, path: Path) -> None:
    """Plot time and memory against length, with log scales and one line per model, as PNG."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    modes = ["forward", "training"] if run.settings.training else ["forward"]
    panels = [(mode, "ms", f"{mode}, ms") for mode in modes] + [(modes[-1], "gib", f"{modes[-1]}, peak GiB")]
    figure = Figure(figsize=(5.5 * len(panels), 5), layout="constrained")
    for axes, (mode, field, title) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        ends = [end for model in run.settings.models for end in draw(axes, run, model, mode, field)]
        lengths = sorted(run.settings.lengths)
        axes.set_xscale("log")
        axes.set_yscale("log")
        wide = max(lengths[-1] / lengths[0], 2)
        axes.set_xlim(lengths[0] * wide**-0.06, lengths[-1] * wide**0.32)  # room for the names at the right
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1,) if high / low > 300 else (1, 2, 5)))
        axes.set_xticks(lengths, [f"{n // 1024}K" if n % 1024 == 0 else str(n) for n in lengths])
        axes.minorticks_off()
        axes.grid(color="#e9ecef")
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}" if y >= 1 else f"{y:g}")
        starved = any(cell.mode == mode and cell.outcome == OUT_OF_MEMORY for cell in run.cells)
        axes.set_xlabel("tokens (x: out of memory beyond)" if starved else "tokens")
        axes.set_title(title, loc="left")
        label(axes, ends)
    figure.savefig(path, dpi=150)


def draw(axes: Any, run: Run, model: str, mode: str, field: str) -> list[tuple[float, float, str, str]]:
    """Plot one model; -> the end, label and color of its line, if it has points."""
    cells = [cell for n in sorted(run.settings.lengths) if (cell := run.find(model, n, mode))]
    points = [(cell.length, getattr(cell, field)) for cell in cells if cell.ms and getattr(cell, field)]
    if not points:
        return []
    ours = [name for name in run.settings.models if name in OURS]
    color, width = ("#343a40", 1.8) if model in DENSE else ("#868e96", 1.2)
    if model in ours:
        color, width = COLORS[ours.index(model)], 2.5
    axes.plot(*zip(*points, strict=True), color=color, lw=width, marker="o", ms=4, zorder=2 + width)
    if any(cell.outcome == OUT_OF_MEMORY for cell in cells):
        axes.plot(*points[-1], color=color, marker="x", ms=9, mew=2)
    return [(*points[-1], model, color)]


def label(axes: Any, ends: list[tuple[float, float, str, str]]) -> None:
    """Names at the ends of the lines, moved apart if they overlap."""
    low, high = axes.get_ylim()
    look = {"va": "center", "fontsize": 9, "zorder": 9, "bbox": {"color": "white", "alpha": 0.7, "pad": 0.5}}
    for at in {end[0] for end in ends}:
        column = sorted((end for end in ends if end[0] == at), key=lambda end: end[1])
        places = apart([math.log(y) for _, y, _, _ in column], 0.042 * math.log(high / low))
        for place, (x, _, text, color) in zip(places, column, strict=True):
            axes.annotate(text, (x, math.exp(place)), (9, 0), textcoords="offset points", color=color, **look)


def apart(places: list[float], step: float) -> list[float]:
    """Sorted places at least one step apart; closer ones are spread evenly around their mean."""
    groups: list[list[float]] = []
    for place in places:
        groups.append([place])
        while len(groups) > 1 and mean(groups[-1]) - mean(groups[-2]) < step * (len(groups[-1]) + len(groups[-2])) / 2:
            groups[-2:] = [groups[-2] + groups[-1]]
    return [mean(group) + step * (i - (len(group) - 1) / 2) for group in groups for i in range(len(group))]
