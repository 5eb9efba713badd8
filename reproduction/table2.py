"""Table 2: encoder-decoders on question answering and summaries; table 7 is one more task of it."""

import json
from collections.abc import Sequence
from pathlib import Path

from reproduction.experiment import Experiment, ProcessStep, Workspace
from reproduction.paper_tables import picture_of, steps_of, table_of
from reproduction.protocol import needs, shown, vcc
from reproduction.report import Report, ReportTable, interval
from vcc.tasks import TASKS
from vcc.tasks.paper import RESULTS, Result

PAPER = tuple(r for r in RESULTS if r.head == "text" and r.task != "multinews" and not r.compression)
ROWS = (("T5", 512, False), ("T5", 4096, False), ("VCC", 4096, True))
# A minute of training per row on a GPU: enough to see it run, not to rank models.
SMALL_STEPS, SMALL_BATCH, SMALL_EXAMPLES = 200, 8, 100


class Table2(Experiment):
    """T5, LongT5, LED and VCC-T5."""

    name = "table 2"
    title = "encoder-decoders from 512 to 16K tokens"
    claim = "VCC matches or betters T5, LongT5 and LED on most of 12 tasks and is about three times as fast."
    paper: Sequence[Result] = PAPER
    tasks: tuple[str, ...] = ("qmsum", "squality")  # of the small scale: those whose data comes in a folder

    def steps(self, at: Workspace) -> list[ProcessStep]:
        return steps_of(self.paper, at) if at.scale == "paper" else self.small_steps(at)

    def small_steps(self, at: Workspace) -> list[ProcessStep]:
        lacks = [one for one in needs(at) if one != "a GPU" or at.small.device == "cuda"]
        if at.data is None:
            lacks.append("--data, a folder with " + " and ".join(self.tasks))
        if not at.t5:
            lacks.append("--t5, a T5 checkpoint: a folder or a hub name")
        made = []
        for task in self.tasks:
            for method, length, ours in ROWS:
                folder = self.folder(at, task, method, length)
                length = min(length, at.small.length)
                common: tuple[object, ...] = ("--data", at.data, "--length", length, "--vcc", str(ours).lower())
                common += ("--device", "cpu") if at.small.device == "cpu" else ()
                steps = min(SMALL_STEPS, at.small.tune_steps)
                tune = vcc(
                    "finetune", task, "--model", at.t5, *common, "--steps", steps, "--batch-size", SMALL_BATCH,
                    "--out", folder, "--resume",
                )  # fmt: skip
                examples = min(SMALL_EXAMPLES, at.small.examples)
                test = vcc(
                    "evaluate", task, "--model", folder, *common, "--examples", examples, "--out", folder / "scores"
                )
                done = folder / f"checkpoint-{steps}" / "config.json"
                made.append(ProcessStep(shown(tune), tune, done, 3, (), True, tuple(lacks)))
                metrics = folder / "scores" / "metrics.json"
                made.append(ProcessStep(shown(test), test, metrics, 2, (done,), True, tuple(lacks)))
        return made

    def folder(self, at: Workspace, task: str, method: str, length: int) -> Path:
        return at.out / "t5" / f"{method}-{length}-{task}".lower()

    def report(self, at: Workspace) -> Report:
        paper = table_of("The paper's table", self.paper, at)
        task, metric = self.paper[0].task, self.paper[0].scores[-1][0]
        one = [result for result in self.paper if result.task == task]
        pictures = (picture_of(f"{task}, the paper" if at.scale == "small" else task, one, metric, at),)
        if at.scale == "paper":
            return Report(self.name, self.title, self.claim, (paper,), pictures)
        rows = []
        for name in self.tasks:
            for method, length, _ in ROWS:
                file = self.folder(at, name, method, length) / "scores" / "metrics.json"
                metrics = json.loads(file.read_text(encoding="utf-8"))["metrics"] if file.exists() else {}
                for wanted in TASKS[name]().metric_names:
                    rows.append((name, wanted, method, f"{min(length, at.small.length):,}", interval(metrics, wanted)))
        own = ReportTable("A few steps each", ("task", "metric", "method", "reads", "ours"), tuple(rows))
        notes = ("Too few steps to rank the models: it shows that every row trains, generates and is scored.",)
        return Report(self.name, self.title, self.claim, (own, paper), pictures, notes)
