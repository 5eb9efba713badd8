"""Results of `benchmarks.decoders` in a file, as tables in Markdown, and as a picture."""

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from vcc.errors import DataError

OURS = "VCC"
CANNOT = 0.25  # right answers of the dense model: a task with fewer says nothing about the others
DRAWS = 2000  # of texts with replacement, for intervals


@dataclass(frozen=True)
class Result:
    """One method on one text. `value`: the mean loss of the new tokens, the recall of the keys they attend to most, or
    the share of questions answered correctly."""

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
    """Markdown: a table for each length of books, of recall, and of contexts in which things are hidden."""
    results = list(results)
    if not results:
        raise DataError("there are no results yet")
    books = sorted({result.length for result in results if result.task == "books"})
    recalled = sorted({result.length for result in results if result.task == "recall"})
    hidden = sorted({result.length for result in results if result.task not in ("books", "recall")})
    parts = [book_table(results, length) for length in books] + [recall_table(results, length) for length in recalled]
    parts += [hidden_table(results, length) for length in hidden]
    return "\n\n".join(parts)


def book_table(results: Sequence[Result], length: int) -> str:
    lines = sorted(summary(results, "books", length), key=lambda line: line.mean)
    rows = [f"**books, {length:,} tokens, {max((line.texts for line in lines), default=0)} texts**", ""]
    rows += ["| method | opened | rows | of all | excess perplexity | 95% | texts |", "|---|---|---|---|---|---|---|"]
    for line in lines:
        mean, low, high = (f"{100 * value:+.1f}" for value in (line.mean, line.low, line.high))
        read = f"{line.rows:,.0f} | {line.rows / length:.1%}"
        rows.append(f"| {named(line)} | {line.setting} | {read} | {mean}% | {low} to {high} | {line.texts} |")
    return "\n".join(rows)


def recall_table(results: Sequence[Result], length: int) -> str:
    lines = sorted(summary(results, "recall", length), key=lambda line: -line.mean)
    rows = [f"**the 100 keys attended to most, of {length:,}, {max(line.texts for line in lines)} texts**", ""]
    rows += ["| method | opened | rows | of all | read | 95% |", "|---|---|---|---|---|---|"]
    for line in lines:
        read = f"{line.rows:,.0f} | {line.rows / length:.1%} | {line.mean:.1%}"
        rows.append(f"| {named(line)} | {line.setting} | {read} | {100 * line.low:.1f} to {100 * line.high:.1f} |")
    return "\n".join(rows)


def hidden_table(results: Sequence[Result], length: int) -> str:
    """A column for each task: the share of questions answered correctly, with the interval of 95%. A task that the
    dense model cannot do is marked."""
    tasks = sorted({r.task for r in results if r.length == length and r.task not in ("books", "recall")})
    found = {task: {(line.method, line.setting): line for line in summary(results, task, length)} for task in tasks}
    texts = max(line.texts for lines in found.values() for line in lines.values())
    rows = [f"**hidden in {length:,} tokens, {texts} contexts for each task, % right**", ""]
    heads = [task if can_do(lines) else f"{task} (says nothing)" for task, lines in found.items()]
    rows += ["| method | opened | of all | " + " | ".join(heads) + " |", "|---" * (len(tasks) + 3) + "|"]
    keys = {key: line.rows for lines in found.values() for key, line in lines.items()}
    for key in sorted(keys, key=lambda key: (key[0] != "dense", key[0] != OURS, keys[key])):
        own = [lines.get(key) for lines in found.values()]
        known = [line for line in own if line is not None]
        share = sum(line.rows for line in known) / len(known) / length
        cells = [
            "" if line is None else f"{100 * line.mean:.0f} ({100 * line.low:.0f} to {100 * line.high:.0f})"
            for line in own
        ]
        rows.append(f"| {named(known[0])} | {key[1]} | {share:.1%} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def can_do(lines: dict[tuple[str, str], Line]) -> bool:
    """Whether the dense model can do a task: what it cannot do, others cannot lose."""
    return any(method == "dense" and line.mean >= CANNOT for (method, _), line in lines.items())


def named(line: Line) -> str:
    return f"**{line.method}**" if line.method == OURS else line.method


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
