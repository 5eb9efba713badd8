"""Reports as Markdown and JSON, with the paper's numbers beside ours."""

import json
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reproduction.picture import Picture, draw
from vcc.files import write_whole

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
