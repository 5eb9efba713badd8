"""Results of `benchmarks.decoders` in a file, as tables in Markdown, and as a picture."""

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from vcc.errors import DataError

OURS = "VCC"
DRAWS = 2000  # of texts with replacement, for intervals


@dataclass(frozen=True)
class Result:
    """One method on one text. `value`: the mean loss of the new tokens, or the share of questions answered rightly."""

    task: str
    text: str
    length: int
    method: str
    setting: str  # leaves opened, or the share of the attention that is read
    value: float
    rows: float

    @property
    def key(self) -> tuple[str, str, int, str, str]:
        return self.task, self.text, self.length, self.method, self.setting


class Results:
    """Those of a file; new ones are written to it at once. A line that was not finished does not count."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        whole = [Result(**json.loads(line)) for line in lines if line.endswith("}")]
        self.known = {result.key: result for result in whole}

    def add(self, result: Result) -> None:
        self.known[result.key] = result
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(result)) + "\n")
        what = f"{result.task} {result.text[:24]:24} {result.length:5} {result.method:19} {result.setting:4}"
        print(f"{what} {result.value:7.4f} {result.rows:6.0f}", flush=True)


@dataclass(frozen=True)
class Line:
    """One method at one length over all texts: a mean of `value`, with the interval of 95%."""

    method: str
    setting: str
    texts: int
    rows: float
    mean: float
    low: float
    high: float


def summary(results: Iterable[Result], task: str, length: int) -> list[Line]:
    """Books: the excess of the perplexity over the dense one's, on texts where both are known. Else: the score."""
    mine = [result for result in results if (result.task, result.length) == (task, length)]
    dense = {result.text: result.value for result in mine if result.method == "dense"}
    lines = []
    for method, setting in dict.fromkeys((result.method, result.setting) for result in mine):
        own = {r.text: r for r in mine if (r.method, r.setting) == (method, setting) and r.text in dense}
        if not own or (task == "books" and method == "dense"):
            continue
        values = [r.value - dense[text] if task == "books" else r.value for text, r in own.items()]
        shown = math.expm1 if task == "books" else float
        low, high = interval(values)
        rows = sum(r.rows for r in own.values()) / len(own)
        lines.append(Line(method, setting, len(own), rows, *map(shown, (sum(values) / len(values), low, high))))
    return lines


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Of the mean, by drawing texts with replacement."""
    draw = random.Random(0)
    means = sorted(sum(draw.choices(values, k=len(values))) / len(values) for _ in range(DRAWS))
    return means[int(0.025 * DRAWS)], means[int(0.975 * DRAWS) - 1]


def tables(results: Iterable[Result]) -> str:
    """Markdown, a table for each task and length."""
    results = list(results)
    if not results:
        raise DataError("there are no results yet")
    parts = []
    for task, length in sorted({(result.task, result.length) for result in results}):
        books = task == "books"
        lines = summary(results, task, length)
        texts = max((line.texts for line in lines), default=0)
        parts += [f"**{task}, {length:,} tokens, {texts} texts**", ""]
        parts += [
            f"| method | opened | rows | of all | {'excess perplexity' if books else 'right'} | 95% | texts |",
            "|---|---|---|---|---|---|---|",
        ]
        for line in sorted(lines, key=lambda line: line.mean * (1 if books else -1)):
            sign, digits = ("+", 1) if books else ("", 0)
            mean, low, high = (f"{100 * value:{sign}.{digits}f}" for value in (line.mean, line.low, line.high))
            share = f"{line.rows / length:.1%}"
            name = f"**{line.method}**" if line.method == OURS else line.method
            parts.append(
                f"| {name} | {line.setting} | {line.rows:,.0f} | {share} | {mean}% | {low} to {high} | {line.texts} |"
            )
        parts.append("")
    return "\n".join(parts)


def picture(results: Iterable[Result], path: Path) -> None:
    """Excess perplexity against the share of rows read, a panel for each length."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = list(results)
    lengths = sorted({result.length for result in results if result.task == "books"})
    figure, panels = plt.subplots(1, len(lengths), figsize=(5 * len(lengths), 3.6), squeeze=False, sharey=True)
    for panel, length in zip(panels[0], lengths, strict=True):
        lines = summary(results, "books", length)
        for method in dict.fromkeys(line.method for line in lines):
            for mass, marker in ((False, "o"), (True, "s")):
                own = [line for line in lines if line.method == method and line.setting.endswith("%") == mass]
                own.sort(key=lambda line: line.rows)
                if own:
                    name = f"{method}, by mass" if mass else method
                    x, y = [100 * line.rows / length for line in own], [100 * line.mean for line in own]
                    below = [100 * (line.mean - line.low) for line in own]
                    above = [100 * (line.high - line.mean) for line in own]
                    width = 2 if method == OURS else 1
                    panel.errorbar(x, y, [below, above], label=name, marker=marker, linewidth=width, capsize=2)
        panel.set_title(f"{length:,} tokens of books")
        panel.set_xlabel("rows read, % of all")
        panel.set_ylim(-1, 17)
        panel.axhline(0, color="grey", linewidth=0.5)
    panels[0][0].set_ylabel("excess perplexity, %")
    panels[0][-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
