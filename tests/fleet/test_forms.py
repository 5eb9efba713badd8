"""Filled forms as rows of a run's table."""

import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.documents import small_model
from tests.fleet.collections import contracts
from vcc.cli import main
from vcc.documents.answer import answer_at
from vcc.documents.document import Document
from vcc.documents.extract.fill import Filled, Form
from vcc.documents.extract.schema import form_schema
from vcc.documents.formats.read import read_text
from vcc.documents.review_table import Question
from vcc.documents.text import Text, join_pieces
from vcc.fleet.table import SCHEMA, as_review, form_rows, parquet_bytes

pytest.importorskip("jsonschema")

FIELDS = {"fee": {"type": "object", "properties": {"amount": {"type": "number"}, "currency": {"type": "string"}}}}
TEXT = {"type": "string"}
FORM = {"type": "object", "properties": {"w1": TEXT, "w2": {"type": "array", "items": TEXT}}}
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


def test_a_folder_of_forms_holds_what_each_document_gives(tmp_path: Path) -> None:
    model, schema, out = small_model.saved(tmp_path / "model"), tmp_path / "fields.json", tmp_path / "all.parquet"
    folder = contracts(tmp_path / "in", 3, 1)
    schema.write_text(json.dumps(FORM))
    given = [*("extract", str(folder), "--schema", str(schema), "--out", str(out)), *("--model", model)]
    assert main([*given, "--threshold", "0", "--workers", "2"]) == 0
    rows = pq.read_table(out).to_pylist()
    names = sorted({row["document"] for row in rows if not row["error"]})
    assert len(names) == 3 and any(row["error"] for row in rows)
    for name in names:
        form = Document(read_text(folder / name), model).extract(FORM, 0.0)
        own = [row for row in rows if row["document"] == name]
        expected = [(one.value, one.answer and one.answer.text) for one in form.fields]
        assert [(row["value"] and json.loads(row["value"]), row["text"]) for row in own] == expected
        assert any(value is not None for value, _ in expected)
