"""Table 7: Multi-News."""

from reproduction.table2 import Table2
from vcc.tasks.paper import RESULTS


class Table7(Table2):
    """Like table 2, on summaries of several news articles."""

    name = "table 7"
    title = "encoder-decoders on Multi-News at 8K tokens"
    claim = "VCC is level with T5 at 4K, LongT5 and LED on Multi-News and faster; larger models are better."
    paper = tuple(result for result in RESULTS if result.task == "multinews")
    tasks = ("sumpubmed",)  # Multi-News in a folder has only test items; this one has a training split
