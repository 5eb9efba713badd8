"""Table 3: does reading more help?"""

from reproduction.experiment import Experiment, ProcessStep, Workspace, chosen_models
from reproduction.paper_tables import steps_of, table_of
from reproduction.picture import Picture, Point, percent
from reproduction.report import Report
from reproduction.small import reports, steps
from reproduction.small.variants import VARIANTS, reads, variant
from vcc.tasks.paper import RESULTS

PAPER = tuple(result for result in RESULTS if result.task == "narrative_qa" and result.compression)
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
MODELS = ("vcc", "dense")
LONGER = ("vcc", "dense", "longformer")  # kinds whose positions can be repeated
TASK = "cuad"


class Table3(Experiment):
    """NarrativeQA from 16K to 128K tokens in the paper; contracts from 512 to 16K tokens at small scale."""

    name = "table 3"
    title = "accuracy against the tokens read"
    claim = "On NarrativeQA accuracy rises with the length that is read, from 16K to 128K tokens."

    def steps(self, at: Workspace) -> list[ProcessStep]:
        if at.scale == "paper":
            return steps_of(PAPER, at)
        lengths = self.lengths(at)
        found = steps.learning(at, list(lengths))
        found += [steps.tune(at, model, TASK) for model in lengths]
        return found + [steps.score(at, TASK, model, n) for model in lengths for n in lengths[model]]

    def lengths(self, at: Workspace) -> dict[str, list[int]]:
        """For each model, from an eighth of its training length to four times that, as far as it has positions."""
        small = at.small
        wanted = [n * small.length // 4096 for n in LENGTHS]

        def readable(model: str) -> list[int]:
            most = reads(model, small.length, small.short)
            return wanted if variant(model).kind in LONGER else [n for n in wanted if n <= most]

        return {model: readable(model) for model in chosen_models(at, VARIANTS, self.name) or MODELS}

    def report(self, at: Workspace) -> Report:
        points = tuple(Point("VCC-T5", r.length, dict(r.scores)["f1"], paper=True) for r in PAPER)
        picture = Picture("NarrativeQA, the paper", "tokens read", percent("f1"), points, log_x=True)
        paper = table_of("The paper's table", PAPER, at)
        if at.scale == "paper":
            return Report(self.name, self.title, self.claim, (paper,), (picture,))
        table, own = reports.by_length(at, TASK, self.lengths(at))
        notes = (f"Tuned at {at.small.length:,} tokens, read at every length.", reports.scale_of(at.small))
        return Report(self.name, self.title, self.claim, (table, paper), (own, picture), notes)
