"""Table 2: encoder-decoders on question answering and summaries; table 7 is one more task of it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reproduction.experiment import Experiment, ProcessStep, Workspace, chosen_models, given
from reproduction.paper_tables import picture_of, steps_of, table_of
from reproduction.report import Report, ReportTable, Value, interval
from reproduction.small import reports, write_steps
from reproduction.small.layout import CURVE, T5
from reproduction.small.pack import pack_for_t5
from reproduction.small.writers import WRITERS
from vcc.tasks import TASKS
from vcc.tasks.paper import RESULTS, Result

PAPER = tuple(r for r in RESULTS if r.head == "text" and r.task != "multinews" and not r.compression)
SUMMARIES = ("qmsum", "squality", "sumpubmed")  # of tables 2 and 7 at small scale: they are packed together


class Table2(Experiment):
    """T5, LongT5, LED and VCC-T5."""

    name = "table 2"
    title = "encoder-decoders from 512 to 16K tokens"
    claim = "VCC matches or betters T5, LongT5 and LED on most of 12 tasks and is about three times as fast."
    paper: Sequence[Result] = PAPER
    tasks: tuple[str, ...] = ("qmsum", "squality")  # of the small scale: those whose data comes in a folder

    def steps(self, at: Workspace) -> list[ProcessStep]:
        if at.scale == "paper":
            return steps_of(self.paper, at)
        return write_steps.comparison(at, self.models_of(at), self.tasks_of(at))

    def pack(self, at: Workspace, megabytes: float) -> Path:
        assert at.data is not None
        wanted = [task for task in at.small.tasks if task in SUMMARIES] or SUMMARIES
        return pack_for_t5(Path(at.data), given(at.t5, "--t5"), at.packed, wanted, megabytes)

    def reads_text(self, at: Workspace) -> bool:
        return True  # the common T5

    def models_of(self, at: Workspace) -> list[str]:
        return chosen_models(at, WRITERS, self.name) or list(WRITERS)

    def tasks_of(self, at: Workspace) -> list[str]:
        """Those of --tasks, likewise."""
        return [task for task in self.tasks if task in at.small.tasks] or list(self.tasks)

    def report(self, at: Workspace) -> Report:
        paper = table_of("The paper's table", self.paper, at)
        tasks = [result.task for result in self.paper]
        task = next((task for task in self.tasks_of(at) if task in tasks), tasks[0])
        one = [result for result in self.paper if result.task == task]
        metric = one[0].scores[-1][0]
        published = picture_of(f"{task}, the paper" if at.scale == "small" else task, one, metric, at)
        if at.scale == "paper":
            return Report(self.name, self.title, self.claim, (paper,), (published,))
        own = ReportTable("The same start, tuned for the same time", COLUMNS, tuple(self.rows(at)))
        told = ReportTable(
            "The models", ("model", "reads"), tuple((name, writer.told) for name, writer in WRITERS.items())
        )
        models = {model: model for model in self.models_of(at)}
        drawn = [
            reports.against_time(at, task, TASKS[task]().metric_names[-1], models, f"{task}, up to", log_x=True)
            for task in self.tasks_of(at)
        ]
        ours = [picture for picture in drawn if picture.points]
        return Report(self.name, self.title, self.claim, (own, told, paper), (*ours, published), (scale_of(at),))

    def rows(self, at: Workspace) -> list[tuple[Value, ...]]:
        found = []
        for task in self.tasks_of(at):
            for model in self.models_of(at):
                writer = WRITERS[model]
                here = replace(at, small=writer.settings(at.small))
                metrics, took = reports.accuracy(here, model, task), reports.times(here, model)
                scores = reports.read(here.layout.scores(model, task)) or {}
                trained = reports.read(here.layout.tuned(model, task) / CURVE) or {}
                length = scores.get("length", writer.reads(at.small))
                rouge = [interval(metrics, name) for name in TASKS[task]().metric_names]
                spent = reports.gpu_seconds(here, model, here.layout.tuned(model, task))
                ms = [
                    took.get(f"{mode}_gpu_ms_each") or took.get(f"{mode}_ms_each") for mode in ("forward", "training")
                ]
                found.append((
                    task, model, f"{length:,}", *rouge, repeated(scores.get("texts", [])),
                    decimals(scores.get("log_perplexity"), 3), decimals(trained.get("steps"), 0), spent,
                    *(decimals(value, 2) for value in ms), took.get("training_gib_several"),
                ))  # fmt: skip
        return found


COLUMNS = (
    "task", "model", "tokens", "Rouge-1", "Rouge-2", "Rouge-L", "repeated 4-grams, %",
    "log perplexity of the references", "steps", "GPU s", "forward ms a sequence",
    "training ms a sequence", "training GiB",
)  # fmt: skip


def repeated(texts: Sequence[str]) -> str | None:
    """How much of its own words a text repeats, on the mean in %: four words in a row that it has before."""
    each = [list(zip(*(text.split()[i:] for i in range(4)), strict=False)) for text in texts]
    shares = [1 - len(set(some)) / len(some) for some in each if some]
    return f"{100 * sum(shares) / len(shares):.0f}" if shares else None


def decimals(value: float | None, places: int) -> str | None:
    return None if value is None else f"{value:,.{places}f}"


def scale_of(at: Workspace) -> str:
    """What was run, and how well the common T5 fills in spans."""
    small, start = at.small, reports.read(at.layout.start(T5) / CURVE)
    learned = [point["log_perplexity"] for point in (start or {"curve": []})["curve"] if "log_perplexity" in point]
    if start and start["steps"]:
        words = f", log perplexity {learned[0]:.3f} → {learned[-1]:.3f}" if learned else ""
        rows = f"{small.t5_batch} x {small.short} tokens"
        made = f"{start['steps']:,} steps of {rows} of span corruption make the common T5{words}"
    else:
        made = "The common T5 has the weights that were packed" if start else "The common T5 is not made yet"
    tuned = f"{small.tune_seconds:g} GPU s" if small.tune_seconds else f"{small.tune_steps} steps"
    return (
        f"{made}; {tuned} teach each task; "
        f"{small.examples} validation examples at most, greedy, {small.written} tokens at most; "
        f"{small.seeds} seeds; {small.device}{', compiled' if small.compile else ''}. Milliseconds of the GPU alone, "
        "encoder and decoder. GPU s: steps times the time of one alone."
    )
