"""Filled forms as rows of a run's table."""

import io
import json

import pyarrow.parquet as pq
import pytest

from vcc.documents.answer import answer_at
from vcc.documents.extract.fill import Filled, Form
from vcc.documents.extract.schema import form_schema
from vcc.documents.review_table import Question
from vcc.documents.text import Text, join_pieces
from vcc.fleet.table import SCHEMA, as_review, form_rows, parquet_bytes

pytest.importorskip("jsonschema")

FIELDS = {"fee": {"type": "object", "properties": {"amount": {"type": "number"}, "currency": {"type": "string"}}}}
ABOUT = dict.fromkeys(SCHEMA.names) | {"document": "a.txt", "notes": ""}


def test_a_value_survives_parquet_and_is_what_the_spreadsheet_shows() -> None:
    body, parts = join_pieces([("", "The fee is $5 a day. No more is said.")])
    evidence = answer_at(Text(body, "a", "a.txt", parts), 11, 13, 0.9)
    schema = form_schema(
        {"type": "object", "properties": {**FIELDS, "escrow": {"type": "boolean"}, "end": {"type": "string"}}}
    )
    filled = (
        Filled("fee", {"amount": 5, "currency": "USD"}, evidence, 0, 1),
        Filled("escrow", False, None, 1, 1),
        Filled("end", None, None, 2, 0),
    )
    questions = [Question(leaf.label, leaf.path) for leaf in schema.leaves]
    data = parquet_bytes(form_rows(ABOUT, questions, Form(schema, {}, filled)))
    rows = pq.read_table(io.BytesIO(data)).to_pylist()
    assert [None if row["value"] is None else json.loads(row["value"]) for row in rows] == [one.value for one in filled]
    assert rows[0]["text"] == "$5" and rows[0]["start"] == 11
    (row,) = as_review(rows, questions).rows
    assert [[answer.text for answer in cell] for cell in row.cells] == [["5 USD"], ["false"], []]
