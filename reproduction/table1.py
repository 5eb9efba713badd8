"""Table 1: encoders at 4K tokens."""

from collections.abc import Sequence
from dataclasses import replace

from reproduction.experiment import Experiment, ProcessStep, Workspace, chosen_models, questions_of
from reproduction.paper_tables import picture_of, steps_of, table_of
from reproduction.report import Report
from reproduction.small import reports, steps
from reproduction.small.variants import TABLE, VARIANTS
from vcc.tasks.paper import RESULTS, Result

PAPER = tuple(result for result in RESULTS if result.head != "text" and result.method != "VCC-150k")


class Table1(Experiment):
    """RoBERTa at 512 and 4K, Big Bird, Longformer, MRA and VCC."""

    name = "table 1"
    title = "encoders at 4K tokens"
    claim = (
        "VCC is consistently better than Longformer and Big Bird and 2.4 to 3.4 times as fast; against RoBERTa at 4K "
        "it is level on QuALITY and WikiHop and 1.3 points of EM behind on HotpotQA; more pretraining helps."
    )
    paper: Sequence[Result] = PAPER
    models: Sequence[str] = TABLE  # --models takes any of `VARIANTS`

    def steps(self, at: Workspace) -> list[ProcessStep]:
        if at.scale == "paper":
            return steps_of(self.paper, at)
        return steps.comparison(self.questions(at), self.models_of(at))

    def models_of(self, at: Workspace) -> Sequence[str]:
        return chosen_models(at, VARIANTS, self.name) or self.models

    def questions(self, at: Workspace) -> Workspace:
        return replace(at, small=replace(at.small, tasks=questions_of(at.small)))

    def report(self, at: Workspace) -> Report:
        paper = table_of("The paper's table", self.paper, at)
        hops = [result for result in self.paper if result.task == "wikihop"]
        if at.scale == "paper":
            picture = picture_of("WikiHop", hops, "accuracy", at)
            return Report(self.name, self.title, self.claim, (paper,), (picture,))
        at, models = self.questions(at), self.models_of(at)
        tables = (*reports.searched(at, models), *reports.comparison(at, models), paper)
        paper_hops = picture_of("WikiHop, the paper", hops, "accuracy", at)
        pictures = (reports.by_time(at, models), reports.perplexities(at, models), paper_hops)
        return Report(self.name, self.title, self.claim, tables, pictures, (reports.scale_of(at.small),))
