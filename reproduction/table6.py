"""Table 6: half of the pretraining."""

from reproduction.small.variants import TABLE
from reproduction.table1 import Table1
from vcc.tasks.paper import RESULTS

METHODS = ("RoBERTa", "BigBird", "Longformer", "VCC", "VCC-150k")


class Table6(Table1):
    """The encoders again, with VCC after 150,000 steps: as many tokens as the others, half as many masked words."""

    name = "table 6"
    title = "encoders, VCC with half of the pretraining"
    claim = "With half of the pretraining VCC's accuracy stays what it is, within half a point."
    paper = tuple(result for result in RESULTS if result.head != "text" and result.method in METHODS)
    models = ("vcc-half", *TABLE)
