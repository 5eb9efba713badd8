"""The table of tasks."""

from typing import Annotated

from rich.console import Console
from rich.table import Table

from vcc.config import WINDOW_LAYERS
from vcc.errors import UsageError
from vcc.tasks import TASKS
from vcc.tasks.paper import COMPRESSION, Compression, Result
from vcc.tasks.task import Task

WIDTH = 220  # wide tables wrap in a narrow terminal; squeezed into 80 columns they are unreadable


def list_tasks(
    results: Annotated[str | None, "show the paper's results on this task instead of the table of tasks"] = None,
) -> None:
    """List the tasks: metric, VIP rule, the paper's hyper-parameters and its results."""
    console = Console(width=WIDTH, soft_wrap=True)
    if results is not None:
        if results not in TASKS:
            raise UsageError(f"unknown task {results!r}: it must be one of {', '.join(TASKS)}")
        console.print(result_table(TASKS[results]()))
        return
    console.print(task_table())
    console.print(compression_line())
    console.print(
        "* not in the paper: values of its nearest task. Where the paper searched, the first value is the "
        "default.\nVCC in the paper: best result. All results on a task: vcc tasks --results TASK"
    )


def task_table() -> Table:
    shown = Table(box=None)
    for column in (
        "task",
        "head",
        "VIPs",
        "metric",
        "length",
        "lr",
        "batch",
        "epochs",
        "warm-up",
        "output",
        "k/h",
        "VCC in the paper",
    ):
        shown.add_column(column, no_wrap=True)
    for name, make in TASKS.items():
        task = make()
        for i, head in enumerate(task.heads):
            recipe = task.recipe(head)
            shown.add_row(
                name + ("" if recipe.of_paper else " *") if i == 0 else "",
                head,
                task.vips if i == 0 else "",
                ", ".join(task.metric_names) if i == 0 else "",
                f"{recipe.length:,}",
                " or ".join(f"{rate:.0e}".replace("e-0", "e-") for rate in recipe.learning_rates),
                " or ".join(map(str, recipe.batch_sizes)),
                " or ".join(map(str, recipe.epochs)),
                str(recipe.warmup_steps),
                str(recipe.output_length or ""),
                shown_compression(recipe.compression),
                best(task, head),
            )
    return shown


def shown_compression(compression: Compression) -> str:
    return f"{compression.k}/{compression.h} {compression.source}"


def compression_line() -> str:
    """The default k and h at each length, then the paper's others; the layers on windows."""
    shown = [
        f"{length // 1024}K " + " or ".join(map(shown_compression, known)) for length, known in COMPRESSION.items()
    ]
    windows = ", ".join(f"{first} of {layers}" for layers, first in WINDOW_LAYERS.items())
    return (
        "k/h: tokens per segment, segments opened, and the source: the paper, its authors' released code, or us.\n"
        f"For inputs longer than a task's, up to {', '.join(shown)}\n"
        f"Layers on windows of 512 tokens: the first {windows}, else a third."
    )


def best(task: Task, head: str) -> str:
    """The paper's best scores with its own method."""
    found = [result for result in task.results() if result.head == head and result.method.startswith("VCC")]
    if not found:
        return ""
    top = max(found, key=lambda result: result.scores[0][1])
    return f"{scores(top)} ({top.size} {top.length // 1024}K)"


def scores(result: Result) -> str:
    return " ".join(f"{name} {score:.1f}" for name, score in result.scores)


def result_table(task: Task) -> Table:
    shown = Table(title=f"{task.name}: the paper's results (dev set), milliseconds for one sequence", box=None)
    for column in ("method", "size", "length", "head", "scores", "ms"):
        shown.add_column(column)
    for result in task.results():
        times = " / ".join(f"{time:.1f}" for time in result.time_ms)
        shown.add_row(result.method, result.size, f"{result.length:,}", result.head, scores(result), times)
    return shown
