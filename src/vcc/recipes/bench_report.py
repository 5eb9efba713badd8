"""What a benchmark found: as JSON and back, as tables in the terminal or in Markdown, and as a picture."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from vcc.recipes.bench_measure import Cell, Settings
from vcc.recipes.bench_models import DENSE, OURS
from vcc.recipes.bench_profile import Profile

COLUMNS = ["model", "attention", "forward ms", "x dense", "training ms", "x dense", "forward GiB", "training GiB"]
COLUMNS += ["tokens/s", "first call s"]
COLORS = ("#c1121f", "#f77f00", "#9d4edd", "#0a9396")  # ours; the others are grey


@dataclass(frozen=True)
class Run:
    """One run of the benchmark: enough to repeat it and to compare it."""

    machine: dict[str, Any]
    versions: dict[str, str]
    settings: Settings
    cells: tuple[Cell, ...] = ()
    profiles: tuple[Profile, ...] = ()

    def find(self, model: str, length: int, mode: str) -> Cell | None:
        return next((c for c in self.cells if (c.model, c.length, c.mode) == (model, length, mode)), None)

    def ratio(self, cell: Cell | None) -> float | None:
        """How many times faster than the dense model of the same run."""
        dense = next((name for name in DENSE if name in self.settings.models), "")
        other = self.find(dense, cell.length, cell.mode) if cell else None
        return other.ms / cell.ms if cell and cell.ms and other and other.ms else None


def save(run: Run, path: Path) -> None:
    path.write_text(json.dumps(asdict(run), indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> Run:
    run = json.loads(path.read_text(encoding="utf-8"))
    lists = {key: tuple(run["settings"][key]) for key in ("models", "lengths")}
    settings = Settings(**{**run["settings"], **lists})
    cells, profiles = (Cell(**cell) for cell in run["cells"]), (Profile(**found) for found in run["profiles"])
    return Run(run["machine"], run["versions"], settings, tuple(cells), tuple(profiles))


# -------------------------------------------------------------------------------------------------------------- tables


def sections(run: Run) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, column names and lines of every table: a length each, then a profile each."""
    found = [(f"{length:,} tokens", COLUMNS, cell_lines(run, length)) for length in run.settings.lengths]
    for part in run.profiles:
        title = f"{part.model}, {part.length:,} tokens, {part.mode}: {part.total_ms:,.1f} ms, uncompiled"
        lines = [[stage, f"{ms:,.2f}", f"{ms / part.total_ms:.0%}"] for stage, ms in part.stages_ms.items()]
        found.append((title, ["stage", "ms", "share"], lines))
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
        lines.append([model, cells[0].attention, *timed, *memory, speed, first])
    return lines


def shown_time(cell: Cell | None) -> str:
    return "" if cell is None else cell.outcome if cell.ms is None else shown(cell.ms)


def shown(number: float | None) -> str:
    return "" if number is None else f"{number:,.{1 if number >= 10 else 2}f}"


def describe(run: Run) -> list[str]:
    """Machine, versions and settings, a line each."""
    parts = (run.machine, run.versions, {k: v for k, v in asdict(run.settings).items() if not isinstance(v, tuple)})
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
        rule = ["---:" if is_number(column) else "---" for column in columns]
        parts.append("\n".join([f"**{title}**", "", *(f"| {' | '.join(line)} |" for line in (columns, rule, *lines))]))
    return "\n\n".join(parts)


def is_number(column: str) -> bool:
    return column not in ("model", "attention", "stage")


# ------------------------------------------------------------------------------------------------------------- picture


def plot(run: Run, path: Path) -> None:
    """Time and memory against length, both logarithmic, a line for each model, as PNG."""
    from matplotlib.figure import Figure

    modes = ["forward", "training"] if run.settings.training else ["forward"]
    panels = [(mode, "ms", f"{mode}, ms") for mode in modes] + [(modes[-1], "gib", f"{modes[-1]}, peak GiB")]
    figure = Figure(figsize=(5.5 * len(panels), 5), layout="constrained")
    for axes, (mode, field, title) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        ends = [end for model in run.settings.models for end in draw(axes, run, model, mode, field)]
        lengths = sorted(run.settings.lengths)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(lengths, [f"{n // 1024}K" if n % 1024 == 0 else str(n) for n in lengths])
        axes.minorticks_off()
        axes.grid(color="#e9ecef")
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("tokens (x: out of memory beyond)")
        axes.set_title(title, loc="left")
        label(axes, ends)
    figure.savefig(path, dpi=150)


def draw(axes: Any, run: Run, model: str, mode: str, field: str) -> list[tuple[float, float, str, str]]:
    """The line of one model; -> its end, its label and its color, if it has any point."""
    cells = [cell for n in sorted(run.settings.lengths) if (cell := run.find(model, n, mode))]
    points = [(cell.length, getattr(cell, field)) for cell in cells if cell.ms and getattr(cell, field)]
    if not points:
        return []
    ours = [name for name in run.settings.models if name in OURS]
    color, width = (COLORS[ours.index(model)], 2.5) if model in ours else ("#868e96", 1.2)
    axes.plot(*zip(*points, strict=True), color=color, lw=width, marker="o", ms=4, zorder=2 + width)
    if any(cell.outcome == "out of memory" for cell in cells):
        axes.plot(*points[-1], color=color, marker="x", ms=9, mew=2)
    return [(*points[-1], model, color)]


def label(axes: Any, ends: list[tuple[float, float, str, str]]) -> None:
    """Names at the ends of the lines, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    step = (high / low) ** 0.042
    above = {x: 0.0 for x, _, _, _ in ends}
    look = {"va": "center", "fontsize": 9, "zorder": 9, "bbox": {"color": "white", "alpha": 0.7, "pad": 0.5}}
    for x, y, text, color in sorted(ends, key=lambda end: end[1]):
        above[x] = max(y, above[x] * step)
        axes.annotate(text, (x, above[x]), (9, 0), textcoords="offset points", color=color, **look)
