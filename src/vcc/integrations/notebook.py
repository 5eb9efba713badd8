"""For notebooks: a review as a DataFrame."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from vcc.errors import UsageError

if TYPE_CHECKING:
    from pandas import DataFrame

INSTALL = "pip install pandas 'vcc-transformers[documents]'"


def review(
    paths: str | Path | Sequence[str | Path],
    questions: Sequence[str] | None = None,
    top: int | None = None,
    threshold: float | None = None,
    model: str | None = None,
    thorough: bool = False,
) -> "DataFrame":
    """Ask every document every question, and return a table: a row per answer, with the columns of `vcc review --out`.

    `paths`: files, folders or patterns. `questions`: unless given, the 41 clauses of a contract review. A question
    without an answer has a row of rank 0, and a document that cannot be read one with its error. `thorough` reads every
    window with every question. Indexes are kept, as by the commands.
    """
    try:
        import pandas
        import pyarrow as pa

        from vcc.fleet.job import Job
        from vcc.fleet.run import Executor, run, work_folder
        from vcc.fleet.shards import Shards
        from vcc.fleet.sources import find_items
        from vcc.fleet.table import SCHEMA
    except ImportError as error:
        raise UsageError(f"a review as a table needs {error.name}: {INSTALL}") from error
    from vcc.documents.question_list import CLAUSE_QUESTIONS
    from vcc.documents.store import default_store

    named = [str(paths)] if isinstance(paths, (str, Path)) else [str(path) for path in paths]
    asked = CLAUSE_QUESTIONS if questions is None else tuple(map(question_of, questions))
    if not named or not asked:
        raise UsageError("a review needs at least one document and one question")
    if top is not None and top < 1:
        raise UsageError(f"top is {top}: it must be at least 1")
    items = find_items(named).items
    store = default_store().folder
    job = Job("ask", model, asked, top, threshold, "" if store is None else str(store), thorough=thorough)
    with TemporaryDirectory(prefix="vcc-") as folder:
        out = Path(folder) / "review.parquet"
        run(job, items, out, Executor(0, one_thread=False))
        rows = Shards(work_folder(out)).rows(items)
        table: Any = pa.Table.from_pylist(rows, SCHEMA).to_pandas()
    assert isinstance(table, pandas.DataFrame)
    return table


def question_of(question: Any) -> Any:
    from vcc.documents.review_table import Question

    if not isinstance(question, str) or not question.strip():
        raise UsageError(f"question {question!r} holds no word")
    return Question(question)
