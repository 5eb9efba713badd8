"""Reports as Markdown, JSON and pictures, with the paper's numbers beside ours."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vcc.files import write_whole

OURS = ("#c1121f", "#ff758f", "#590d22", "#f77f00", "#b5179e", "#e5989b", "#9d4edd", "#fcbf49", "#6a040f")
MARKERS = "ov^sDP*X<"  # of our variants
OTHERS = {  # the same in all pictures
    "roberta": "#1f77b4",
    "dense": "#1f77b4",
    "dense-512": "#17becf",
    "longformer": "#2ca02c",
    "bigbird": "#ff7f0e",
    "mra": "#9467bd",
    "t5": "#0b3954",
    "longt5": "#8c564b",
    "led": "#bcbd22",
}
SPARE = ("#7f7f7f", "#3a86ff", "#606c38", "#adb5bd", "#264653")
Value = str | float | None


@dataclass(frozen=True)
class ReportTable:
    """One table; numbers have one decimal place, missing values are blank."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def markdown(self) -> str:
        numbers = [any(isinstance(row[i], (int, float)) for row in self.rows) for i in range(len(self.columns))]
        rule = ["---:" if number else "---" for number in numbers]
        lines = [list(self.columns), rule, *([shown(cell) for cell in row] for row in self.rows)]
        return "\n".join([f"**{self.title}**", "", *(f"| {' | '.join(line)} |" for line in lines)])


@dataclass(frozen=True)
class Point:
    """A point of the picture; points of one line are joined in the order of x."""

    line: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    paper: bool = False
    label: str = ""


@dataclass(frozen=True)
class Picture:
    """One panel."""

    title: str
    x: str
    y: str
    points: tuple[Point, ...] = ()
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Report:
    """All of it."""

    name: str
    title: str
    claim: str
    tables: tuple[ReportTable, ...]
    pictures: tuple[Picture, ...] = ()
    notes: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        notes = "\n".join(f"- {note}" for note in self.notes)
        parts = [
            f"# {self.name}: {self.title}",
            f"The paper: {self.claim}",
            *(t.markdown() for t in self.tables),
            notes,
        ]
        return "\n\n".join(part for part in parts if part) + "\n"


def shown(cell: Value) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else f"{cell:,.1f}" if abs(cell) < 10_000 else f"{cell:,.0f}"


def interval(metrics: dict[str, float], name: str) -> str | None:
    """A percentage with its 95% interval."""
    if name not in metrics:
        return None
    low, high = metrics.get(f"{name}_low"), metrics.get(f"{name}_high")
    return f"{metrics[name]:.1f}" + (f" ({low:.1f} to {high:.1f})" if low is not None and high is not None else "")


def write(report: Report, out: Path) -> list[Path]:
    """Write `<name>.md`, `.json` and, if there is a picture and matplotlib is installed, `.png`."""
    out.mkdir(parents=True, exist_ok=True)
    base = out / report.name.replace(" ", "-")
    write_whole(base.with_suffix(".md"), report.markdown())
    write_whole(base.with_suffix(".json"), json.dumps(asdict(report), indent=1, default=str))
    written = [base.with_suffix(".md"), base.with_suffix(".json")]
    drawn = [picture for picture in report.pictures if picture.points]
    if drawn and find_spec("matplotlib"):
        draw(drawn, base.with_suffix(".png"))
        written.append(base.with_suffix(".png"))
    return written


def is_ours(line: str) -> bool:
    return line.lower().startswith("vcc")


def draw(pictures: Sequence[Picture], path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    figure = Figure(figsize=(7.4 * len(pictures), 4.8), layout="constrained")
    for axes, picture in zip(figure.subplots(1, len(pictures), squeeze=False)[0], pictures, strict=True):
        lines = list(dict.fromkeys((point.line, point.paper) for point in picture.points))
        ours = list(dict.fromkeys(name for name, _ in lines if is_ours(name)))
        unknown = [name for name, _ in lines if not is_ours(name) and name.lower() not in OTHERS]
        for number, (line, paper) in enumerate(lines):
            points = sorted((p for p in picture.points if (p.line, p.paper) == (line, paper)), key=lambda p: p.x)
            xs, ys = [p.x for p in points], [p.y for p in points]
            if line in ours:
                place = ours.index(line)
                color, marker = OURS[place % len(OURS)], MARKERS[place % len(MARKERS)]
            else:
                color, marker = OTHERS.get(line.lower()) or SPARE[unknown.index(line) % len(SPARE)], "o"
            filled = "white" if paper else color
            style: dict[str, Any] = {"ls": ":" if paper else "-", "marker": "s" if paper else marker, "ms": 5, "lw": 1}
            axes.plot(xs, ys, label=f"{line}, paper" if paper else line, color=color, mfc=filled, **style)
            if all(p.low is not None and p.high is not None for p in points):
                bars = [[p.y - (p.low or 0) for p in points], [(p.high or 0) - p.y for p in points]]
                axes.errorbar(xs, ys, yerr=bars, fmt="none", ecolor=color, alpha=0.4)
            for p in points:
                if p.label:
                    aside = (4, -10 if number % 2 else 4)  # keeps neighbouring labels readable
                    axes.annotate(p.label, (p.x, p.y), aside, textcoords="offset points", fontsize=7, color=color)
        for wanted, axis, set_scale in (
            (picture.log_x, axes.xaxis, axes.set_xscale),
            (picture.log_y, axes.yaxis, axes.set_yscale),
        ):
            if wanted:
                set_scale("log")
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
                axis.set_minor_locator(NullLocator())
        if not picture.log_x:  # ratios of times can be seen only from zero
            axes.set_xlim(left=0)
        axes.set_xlabel(picture.x)
        axes.set_ylabel(picture.y)
        axes.set_title(picture.title, loc="left")
        axes.grid(color="#e9ecef")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    figure.savefig(path, dpi=150)
