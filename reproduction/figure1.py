"""Figure 1: time and memory against length."""

from reproduction.experiment import Experiment, ProcessStep, Workspace
from reproduction.picture import Picture, Point
from reproduction.protocol import needs, shown, vcc
from reproduction.report import Report, ReportTable
from vcc.bench import report as bench_report
from vcc.tasks.paper import RESULTS

BASE = (
    "vcc-roberta",
    "vcc-t5",
    "roberta",
    "t5",
    "longformer",
    "bigbird",
    "bigbird-blocks",
    "mra",
    "longt5-global",
    "led",
)
SMALL = ("vcc-bert", "bert", "longformer", "bigbird", "mra")
# HotpotQA's and NarrativeQA's times are those of the table's text: one sequence each, on an A100.
PAPER = tuple(r for r in RESULTS if r.size == "base" and r.task in ("hotpotqa", "narrative_qa") and r.length >= 4096)


class Figure1(Experiment):
    """Every model on sequences from 4K to 128K tokens."""

    name = "figure 1"
    title = "time and memory of one sequence against its length"
    claim = "Longformer, Big Bird and LongT5 become slow and need much memory as sequences grow; VCC does not."

    def steps(self, at: Workspace) -> list[ProcessStep]:
        folder = at.out / "bench" / at.scale
        if at.scale == "paper":
            words: tuple[object, ...] = ("--preset", "gpu", "--models", ",".join(BASE))
            words += ("--lengths", "4096,8192,16384,32768,65536,131072", "--limit", 60)
            took, lacks = 25.0, needs(at)
        else:
            lengths = ",".join(str(at.small.length * factor // 4) for factor in (1, 2, 4, 8))
            words = ("--preset", "cpu" if at.small.device == "cpu" else "gpu", "--size", "minilm")
            words += ("--models", ",".join(SMALL), "--lengths", lengths, "--limit", 120)
            took, lacks = 10.0, ()
        command = vcc("bench", *words, "--out", folder)
        return [ProcessStep(shown(command), command, folder / "bench.png", took, (), True, tuple(lacks))]

    def report(self, at: Workspace) -> Report:
        paper = ReportTable(
            "The paper's times, from its tables (the figure is a picture)",
            ("task", "method", "length", "ms of the model", "ms of the encoder"),
            tuple(
                (r.task, r.method, f"{r.length:,}", r.time_ms[0], r.time_ms[1] if len(r.time_ms) > 1 else None)
                for r in PAPER
            ),
        )
        tables, pictures, notes = [paper], [], []
        file = at.out / "bench" / at.scale / "bench.json"
        if file.exists():
            run = bench_report.load(file)
            rows = [
                (c.model, f"{c.length:,}", c.mode, c.ms if c.ms is not None else c.outcome, c.gib) for c in run.cells
            ]
            tables.insert(0, ReportTable("Measured", ("model", "length", "mode", "ms", "GiB"), tuple(rows)))
            for field, y in (("ms", "ms per sequence"), ("gib", "peak GiB")):
                points = tuple(
                    Point(c.model, c.length, getattr(c, field))
                    for c in run.cells
                    if c.mode == "forward" and getattr(c, field)
                )
                pictures.append(Picture(y, "tokens", y, points, log_x=True, log_y=True))
            notes = bench_report.describe(run)
        return Report(self.name, self.title, self.claim, tuple(tables), tuple(pictures), tuple(notes))
