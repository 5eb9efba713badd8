"""Figure 8: the frontier of figure 5 with half of the pretraining."""

from dataclasses import replace

from reproduction.figure5 import SETTINGS, Figure5
from vcc.tasks.paper import RESULTS


class Figure8(Figure5):
    """Like figure 5, with VCC after 150,000 steps."""

    name = "figure 8"
    title = "accuracy against time over settings, VCC with half of the pretraining"
    claim = "With half of the pretraining VCC's frontier is still better than the others'."
    settings = tuple(replace(s, model="vcc-half") if s.model == "vcc" else s for s in SETTINGS)
    paper = tuple(r for r in RESULTS if r.task == "wikihop" and r.head == "choice" and r.method not in ("VCC", "VCC*"))
