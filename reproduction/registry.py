"""Every table and figure that can be reproduced, by name."""

from collections.abc import Callable

from reproduction.a5 import AppendixA5
from reproduction.cuad import CuadTest
from reproduction.experiment import Experiment
from reproduction.figure1 import Figure1
from reproduction.figure5 import Figure5
from reproduction.figure8 import Figure8
from reproduction.table1 import Table1
from reproduction.table2 import Table2
from reproduction.table3 import Table3
from reproduction.table5 import Table5
from reproduction.table6 import Table6
from reproduction.table7 import Table7
from reproduction.tasks.experiment import Tasks

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
    "a5": AppendixA5,
    "cuad": CuadTest,
    "tasks": Tasks,
}
