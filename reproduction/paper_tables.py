"""Reports of tables whose cells are models on tasks: the paper's scores and times, ours beside them."""

from collections.abc import Sequence

from reproduction.experiment import ProcessStep, Workspace, unique
from reproduction.picture import Picture, Point, percent
from reproduction.protocol import PaperCell, best, cell_steps
from reproduction.report import ReportTable, interval
from vcc.tasks.paper import Result


def steps_of(results: Sequence[Result], at: Workspace) -> list[ProcessStep]:
    return unique(step for result in results for step in cell_steps(PaperCell.of(result), at))


def table_of(title: str, results: Sequence[Result], at: Workspace) -> ReportTable:
    rows = []
    for result in results:
        found = best(PaperCell.of(result), at) or {}
        for metric, score in result.scores:
            k_h = f"k {result.compression.k}, h {result.compression.h}" if result.compression else ""
            row = (result.task, metric, result.method, result.size, f"{result.length:,}", k_h)
            rows.append((*row, score, interval(found, metric), result.time_ms[0]))
    columns = ("task", "metric", "method", "size", "length", "settings", "paper", "ours", "paper, ms on an A100")
    return ReportTable(title, columns, tuple(rows))


def picture_of(title: str, results: Sequence[Result], metric: str, at: Workspace) -> Picture:
    """Score against the paper's time; our scores use the paper's time of the same cell."""
    points = []
    for result in results:
        scores = dict(result.scores)
        if metric not in scores:
            continue
        label = f"{result.length // 1024 or result.length}{'K' if result.length >= 1024 else ''} {result.size}"
        points.append(Point(result.method, result.time_ms[0], scores[metric], paper=True, label=label))
        if found := best(PaperCell.of(result), at):
            points.append(Point(result.method, result.time_ms[0], found[metric], label=label))
    return Picture(title, "ms per sequence (paper, A100)", percent(metric), tuple(points), log_x=True)
