"""Figure 5: accuracy against time over each method's own settings. At small scale a model is tuned with each."""

from dataclasses import replace

from reproduction.experiment import Experiment, ProcessStep, Workspace, chosen_models, unique
from reproduction.paper_tables import picture_of, table_of
from reproduction.protocol import PaperCell, cell_steps
from reproduction.report import Report
from reproduction.small import reports, steps
from reproduction.small.steps import Setting
from reproduction.small.variants import VARIANTS, variant
from vcc.errors import UsageError
from vcc.tasks.paper import RESULTS, Compression

SETTINGS = (
    *(Setting("vcc", f"h{h}", {"budget": [h]}) for h in (10, 20, 40, 70, 140)),
    Setting("vcc", "k32-h35", {"scales": [32, 1], "budget": [35]}),
    *(Setting("longformer", f"w{w}", {"window": w}) for w in (64, 128, 256, 512)),
    *(Setting("bigbird", f"b{b}", {"block": b}) for b in (16, 32, 64, 128)),
    *(Setting("mra", f"m{m}", {"per_row": m}) for m in (2, 4, 8, 16)),
    Setting("dense", "full", {}),
)
TASK = "squad_haystack"
PAPER = tuple(r for r in RESULTS if r.task == "wikihop" and r.head == "choice" and r.method != "VCC-150k")
BUDGETS = (20, 40, 80, 120, 160)  # our choice: the paper's figure does not print its h


class Figure5(Experiment):
    """WikiHop in the paper; hidden paragraphs at small scale."""

    name = "figure 5"
    title = "accuracy against time over settings"
    claim = "VCC's frontier of accuracy against time is consistently better than the others'."
    settings = SETTINGS
    paper = PAPER

    def steps(self, at: Workspace) -> list[ProcessStep]:
        if at.scale == "paper":
            ours = [PaperCell("VCC", "base", 4096, "wikihop", "choice", Compression(16, h)) for h in BUDGETS]
            return unique(step for cell in (*map(PaperCell.of, self.paper), *ours) for step in cell_steps(cell, at))
        settings = self.settings_of(at)
        models = [name for name in dict.fromkeys(setting.model for setting in settings)]
        found = [steps.hide(at), *steps.learning(at, models), steps.clock(at, settings)]
        return [*found, *(steps.tune(at, setting.model, TASK, setting=setting) for setting in settings)]

    def settings_of(self, at: Workspace) -> tuple[Setting, ...]:
        """The compared models; a variant uses the settings of its kind."""
        chosen = tuple(
            replace(setting, model=model)
            for model in chosen_models(at, VARIANTS, self.name)
            for setting in self.settings
            if variant(setting.model).kind == variant(model).kind
        )
        if at.small.models and not chosen:
            kinds = dict.fromkeys(setting.model for setting in self.settings)
            raise UsageError(f"--models {', '.join(at.small.models)}: {self.name} must have one of {', '.join(kinds)}")
        return chosen or self.settings

    def report(self, at: Workspace) -> Report:
        paper = table_of("The paper's points that its tables give", self.paper, at)
        picture = picture_of("WikiHop", self.paper, "accuracy", at)
        if at.scale == "paper":
            return Report(self.name, self.title, self.claim, (paper,), (picture,))
        table, own = reports.frontier(at, TASK, self.settings_of(at))
        return Report(self.name, self.title, self.claim, (table, paper), (own, picture), (reports.scale_of(at.small),))
