"""The table of a run: a row per answer, one per question without an answer, one per document that failed.

Parquet holds all of it; CSV and XLSX have a row per document. The columns of an answer are those of `Answer`.
"""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from vcc.documents.answer import Answer
from vcc.documents.review_table import Question, ReviewRow, ReviewTable
from vcc.documents.show.spreadsheet import write_spreadsheet
from vcc.errors import UsageError
from vcc.files import write_whole

if TYPE_CHECKING:
    from vcc.documents.extract.fill import Form

Row = dict[str, Any]  # by the names of SCHEMA

BOX = pa.struct([("page", pa.int32()), *((edge, pa.float64()) for edge in ("x0", "y0", "x1", "y1"))])
SCHEMA = pa.schema(
    [
        ("document", pa.string()),  # its name in the source
        ("id", pa.string()),  # SHA-256 of content, model, questions and settings; null where it could not be fetched
        ("title", pa.string()),
        ("tokens", pa.int64()),
        ("notes", pa.string()),  # on what could not be read
        ("question_number", pa.int32()),  # from 0; null where nothing was asked
        ("question", pa.string()),
        ("name", pa.string()),  # of the question, e.g. that of a clause
        ("rank", pa.int32()),  # 1 is the best answer; 0: none was found
        ("text", pa.string()),
        ("start", pa.int64()),  # characters of the document's text
        ("end", pa.int64()),
        ("score", pa.float64()),
        ("place", pa.string()),  # for people: "page 3"; for the job "index", the folder of the index in the store
        ("page", pa.int32()),
        ("sentence", pa.string()),
        ("sure", pa.bool_()),  # false: below the threshold
        ("boxes", pa.list_(BOX)),
        ("value", pa.string()),  # of a field of a form, as JSON; null for answers to questions
        ("kind", pa.string()),  # of the error: fetch, document, crash, hang, memory, worker, internal
        ("error", pa.string()),
    ]
)
SUFFIXES = (".parquet", ".csv", ".xlsx")


def check_output(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--out is {path}: it must end in {', '.join(SUFFIXES)}")


def rows_of(about: Row, questions: Sequence[Question], found: ReviewRow) -> Iterator[Row]:
    """The rows of a document; `about` holds the columns that are the same in all of them."""
    for number, (question, cell) in enumerate(zip(questions, found.cells, strict=True)):
        asked = about | {"question_number": number, "question": question.question, "name": question.heading, "rank": 0}
        if not cell:
            yield asked
        for rank, answer in enumerate(cell, 1):
            yield asked | {"rank": rank} | answer.as_dict()


def form_rows(about: Row, questions: Sequence[Question], form: "Form") -> Iterator[Row]:
    """The rows of a filled form, one per value; one with rank 0 per field without a value, with what is doubtful."""
    for filled in form.fields:
        question = questions[filled.number]
        asked = about | {"question_number": filled.number, "question": question.question, "name": filled.path}
        evidence = {} if filled.answer is None else filled.answer.as_dict()
        value = None if filled.value is None else json.dumps(filled.value, ensure_ascii=False)
        yield asked | evidence | {"rank": filled.rank, "value": value}


def write_table(path: Path, rows: Sequence[Row], questions: Sequence[Question]) -> None:
    """Write the table in the format of the suffix; the same rows give the same bytes."""
    check_output(path)
    if path.suffix.lower() == ".parquet":
        write_whole(path, parquet_bytes(rows))
    else:
        write_spreadsheet(path, as_review(rows, questions))


def parquet_bytes(rows: Iterable[Row], metadata: dict[str, str] | None = None) -> bytes:
    table = pa.Table.from_pylist(list(rows), SCHEMA.with_metadata(metadata))
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd")
    return out.getvalue()


def as_review(rows: Sequence[Row], questions: Sequence[Question]) -> ReviewTable:
    """The same as one row per document, one cell per question."""
    found = []
    for document, group in groupby(rows, key=lambda row: row["document"]):
        own = list(group)
        if own[0]["error"] is not None:
            found.append(ReviewRow(document, error=own[0]["error"]))
            continue
        cells: list[list[Answer]] = [[] for _ in questions]
        for row in own:
            if row["rank"]:
                cells[row["question_number"]].append(shown_answer(row))
        notes = tuple((own[0]["notes"] or "").splitlines())
        found.append(ReviewRow(document, tuple(map(tuple, cells)), notes))
    return ReviewTable(tuple(questions), tuple(found))


def shown_answer(row: Row) -> Answer:
    """The answer in a row; that of a form shows its value."""
    if row.get("value") is None:
        return Answer.from_dict(row)
    from vcc.documents.extract.form_table import value_answer

    return value_answer(json.loads(row["value"]), None if row["text"] is None else Answer.from_dict(row))
