"""Every task of the paper and a few more, by name."""

from collections.abc import Callable
from functools import partial

from vcc.tasks.babi import BabiInBooks
from vcc.tasks.cuad import Cuad
from vcc.tasks.hotpotqa import MultiHop
from vcc.tasks.needle import Needle, NeedleInBooks
from vcc.tasks.quality import Quality
from vcc.tasks.scrolls import TextTask
from vcc.tasks.spans import SpanTask
from vcc.tasks.squad import Squad
from vcc.tasks.squad_haystack import SquadHaystack
from vcc.tasks.task import SPLITS, Split, Task
from vcc.tasks.wikihop import WikiHop

__all__ = ["SPLITS", "TASKS", "Split", "Task"]

_SCROLLS = "tau/scrolls"

TASKS: dict[str, Callable[..., Task]] = {
    "hotpotqa": MultiHop,
    "musique": partial(MultiHop, "musique", hub="", like="hotpotqa"),
    "2wikimultihop": partial(MultiHop, "2wikimultihop", hub="", like="hotpotqa"),
    "wikihop": WikiHop,
    "quality": Quality,
    "qasper": partial(TextTask, "qasper", "answer", _SCROLLS),
    "narrative_qa": partial(TextTask, "narrative_qa", "answer", _SCROLLS),
    "contract_nli": partial(TextTask, "contract_nli", "answer", _SCROLLS),
    "qmsum": partial(TextTask, "qmsum", "summary on a question", _SCROLLS),
    "squality": partial(
        TextTask,
        "squality",
        "summary on a question",
        targets=("summaries",),
        several=True,
        like="qmsum",
        unlike={"output_length": 512},
    ),
    "cnn_dailymail": partial(
        TextTask,
        "cnn_dailymail",
        "summary",
        "abisee/cnn_dailymail:3.0.0",
        ("document", "article"),
        ("summary", "highlights"),
    ),
    "mediasum": partial(TextTask, "mediasum", "summary", "ccdv/mediasum", ("document", "utt")),
    "arxiv": partial(
        TextTask,
        "arxiv",
        "summary",
        "ccdv/arxiv-summarization",
        ("document", "article", "article_text"),
        ("summary", "abstract", "abstract_text"),
    ),
    "gov_report": partial(TextTask, "gov_report", "summary", _SCROLLS),
    "summ_screen_fd": partial(TextTask, "summ_screen_fd", "summary", _SCROLLS),
    "multinews": partial(TextTask, "multinews", "summary"),
    "crd3": partial(TextTask, "crd3", "summary", like="qmsum", unlike={"output_length": 512}),
    "sumpubmed": partial(TextTask, "sumpubmed", "summary", like="summ_screen_fd"),
    "cuad": Cuad,
    "squad": Squad,
    "squad_haystack": SquadHaystack,
    "fairytaleqa": SpanTask,
    "timeqa": partial(SpanTask, "timeqa", no_answer=True),
    "needle": Needle,
    "needle_in_books": NeedleInBooks,
    "babi_in_books": BabiInBooks,
}
