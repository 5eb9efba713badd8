"""Every table and figure that can be reproduced, by name."""

from collections.abc import Callable

from vcc.reproduce.experiment import Experiment
from vcc.reproduce.figure1 import Figure1
from vcc.reproduce.figure5 import Figure5
from vcc.reproduce.figure8 import Figure8
from vcc.reproduce.table1 import Table1
from vcc.reproduce.table2 import Table2
from vcc.reproduce.table3 import Table3
from vcc.reproduce.table5 import Table5
from vcc.reproduce.table6 import Table6
from vcc.reproduce.table7 import Table7

EXPERIMENTS: dict[str, Callable[[], Experiment]] = {
    "table1": Table1,
    "table2": Table2,
    "table3": Table3,
    "table5": Table5,
    "table6": Table6,
    "table7": Table7,
    "figure1": Figure1,
    "figure5": Figure5,
    "figure8": Figure8,
}
