"""Pictures of reports: accuracy against time or length, with the paper's points beside ours.

A picture is to be understood without the text around it: a line below the title says how to read it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OURS = ("#c1121f", "#ff758f", "#590d22", "#f77f00", "#b5179e", "#e5989b", "#9d4edd", "#fcbf49", "#6a040f")
MARKERS = "ov^sDP*X<"  # of our variants
OTHERS = {  # the same in all pictures
    "roberta": "#1f77b4",
    "dense": "#1f77b4",
    "dense attention": "#1f77b4",
    "dense-512": "#17becf",
    "longformer": "#2ca02c",
    "bigbird": "#ff7f0e",
    "mra": "#9467bd",
    "t5": "#0b3954",
    "longt5": "#8c564b",
    "led": "#bcbd22",
}
SPARE = ("#7f7f7f", "#3a86ff", "#606c38", "#adb5bd", "#264653")
METRICS = {"f1": "F1", "em": "exact match", "aupr": "AUPR", "accuracy": "right choices", "rougeL": "Rouge-L"}


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

    @property
    def of(self) -> tuple[str, bool]:
        """The line, which the paper may have too."""
        return self.line, self.paper


@dataclass(frozen=True)
class Picture:
    """One panel. `told` says how to read it."""

    title: str
    x: str
    y: str
    points: tuple[Point, ...] = ()
    log_x: bool = False
    log_y: bool = False
    told: str = ""


def percent(metric: str) -> str:
    """The name of an axis."""
    return f"{METRICS.get(metric, metric)}, %"


def is_ours(line: str) -> bool:
    return line.lower().startswith("vcc")


def draw(pictures: Sequence[Picture], path: Path) -> None:
    """One panel beside the other; a line has the same color and marker in all of them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7 * len(pictures), 5.4), layout="constrained")
    looks = looks_of(point.line for picture in pictures for point in picture.points)
    for axes, picture in zip(figure.subplots(1, len(pictures), squeeze=False)[0], pictures, strict=True):
        for number, line in enumerate(dict.fromkeys(point.of for point in picture.points)):
            draw_line(
                axes, [point for point in picture.points if point.of == line], *looks[line[0]], -10 * (number % 2)
            )
        scale_axes(axes, picture)
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(-0.02, -0.13), ncols=2, frameon=False)
        axes.set_xlabel(picture.x)
        axes.set_ylabel(picture.y)
        axes.set_title(picture.title, loc="left", fontsize=11, pad=20 if picture.told else None)
        axes.text(0, 1.02, picture.told, transform=axes.transAxes, fontsize=8, color="#495057")
        axes.grid(color="#e9ecef")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def looks_of(lines: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The color and the marker of each line."""
    names = list(dict.fromkeys(lines))
    ours = [name for name in names if is_ours(name)]
    unknown = [name for name in names if not is_ours(name) and name.lower() not in OTHERS]
    looks = {name: (OURS[i % len(OURS)], MARKERS[i % len(MARKERS)]) for i, name in enumerate(ours)}
    looks |= {name: (SPARE[i % len(SPARE)], "o") for i, name in enumerate(unknown)}
    return looks | {name: (OTHERS[name.lower()], "o") for name in names if name not in looks}


def draw_line(axes: Any, points: Sequence[Point], color: str, marker: str, lower: int) -> None:
    """A line with its intervals; labels may stand lower than those of the line before."""
    points = sorted(points, key=lambda point: point.x)
    xs, ys, paper = [p.x for p in points], [p.y for p in points], points[0].paper
    label = f"{points[0].line}, paper" if paper else points[0].line
    style: dict[str, Any] = {"ls": ":" if paper else "-", "marker": "s" if paper else marker, "ms": 5, "lw": 1}
    axes.plot(xs, ys, label=label, color=color, mfc="white" if paper else color, **style)
    if all(p.low is not None and p.high is not None for p in points):
        bars = [[p.y - (p.low or 0) for p in points], [(p.high or 0) - p.y for p in points]]
        axes.errorbar(xs, ys, yerr=bars, fmt="none", ecolor=color, alpha=0.4)
    for p in points:
        if p.label:
            axes.annotate(p.label, (p.x, p.y), (4, 4 + lower), textcoords="offset points", fontsize=7, color=color)


def scale_axes(axes: Any, picture: Picture) -> None:
    """Logarithmic axes have plain numbers; others show ratios of times, from zero."""
    from matplotlib.ticker import LogLocator, NullLocator

    for wanted, axis, set_scale in (
        (picture.log_x, axes.xaxis, axes.set_xscale),
        (picture.log_y, axes.yaxis, axes.set_yscale),
    ):
        if wanted:
            set_scale("log")
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
            axis.set_minor_locator(NullLocator())
    if not picture.log_x:
        axes.set_xlim(left=0)
