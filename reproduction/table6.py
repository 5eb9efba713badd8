"""Table 6: half of the pretraining."""

from reproduction.experiment import Experiment, ProcessStep, Workspace
from reproduction.paper_tables import picture_of, steps_of, table_of
from reproduction.report import Report
from reproduction.small import reports, steps
from reproduction.small.variants import TABLE
from vcc.tasks.paper import RESULTS

METHODS = ("RoBERTa", "BigBird", "Longformer", "VCC", "VCC-150k")
PAPER = tuple(result for result in RESULTS if result.head != "text" and result.method in METHODS)


class Table6(Experiment):
    """The encoders again, with VCC after 150,000 steps: as many tokens as the others, half as many masked words."""

    name = "table 6"
    title = "encoders, VCC with half of the pretraining"
    claim = "With half of the pretraining VCC's accuracy stays what it is, within half a point."
    models = ("vcc-half", *TABLE)

    def steps(self, at: Workspace) -> list[ProcessStep]:
        return steps_of(PAPER, at) if at.scale == "paper" else steps.comparison(at, self.models)

    def report(self, at: Workspace) -> Report:
        paper = table_of("The paper's table", PAPER, at)
        hops = [result for result in PAPER if result.task == "wikihop"]
        pictures = [picture_of("WikiHop", hops, "accuracy", at)]
        if at.scale == "paper":
            return Report(self.name, self.title, self.claim, (paper,), tuple(pictures))
        tables = (*reports.searched(at, self.models), *reports.comparison(at, self.models), paper)
        pictures.insert(0, reports.perplexities(at, self.models))
        return Report(self.name, self.title, self.claim, tables, tuple(pictures), (reports.scale_of(at.small),))
