"""Schemas become fields; one that cannot be filled gets one clear line."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, Field

from vcc.documents.extract.schema import MOST_FIELDS, form_schema
from vcc.documents.extract.wordings import clause_question, questions_of
from vcc.errors import UsageError

pytest.importorskip("jsonschema")


def form(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


class Price(BaseModel):
    amount: float
    currency: str | None


class Lease(BaseModel):
    landlord: str = Field(description="Who lets the flat?")
    rent: Price
    begins: "str | None" = Field(None, json_schema_extra={"format": "date"})
    rooms: list[str] = []


def test_a_pydantic_class_becomes_fields() -> None:
    leaves = {leaf.path: leaf for leaf in form_schema(Lease).leaves}
    assert {path: leaf.kind for path, leaf in leaves.items()} == {
        "landlord": "text",
        "rent": "sum",
        "begins": "date",
        "rooms": "list",
    }
    assert leaves["begins"].nullable and not leaves["landlord"].nullable
    assert questions_of(leaves["landlord"])[0] == "Who lets the flat?"


def test_a_field_named_like_a_clause_is_asked_as_review_asks() -> None:
    (law,) = form_schema(form(governingLaw={"type": "string"})).leaves
    assert clause_question(law) == questions_of(law)[0] and '"Governing Law"' in questions_of(law)[0]


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = form(inner=schema)
    return schema


def bomb() -> dict[str, Any]:
    """Each definition holds the next one twice: 2 to the power of 30 fields."""
    both = [form(a={"$ref": f"#/$defs/d{i + 1}"}, b={"$ref": f"#/$defs/d{i + 1}"}) for i in range(30)]
    return {**form(x={"$ref": "#/$defs/d0"}), "$defs": {f"d{i}": one for i, one in enumerate(both)}}


HOSTILE = {
    "not an object": ({"type": "string"}, "object"),
    "no properties": ({"type": "object"}, "nothing to fill"),
    "recursive": ({**form(a={"$ref": "#"})}, "leads back to itself"),
    "recursive in a list": (
        {**form(a={"$ref": "#/$defs/n"}), "$defs": {"n": form(n={"type": "array", "items": {"$ref": "#/$defs/n"}})}},
        "leads back to itself",
    ),
    "remote": (form(a={"$ref": "https://example.org/schema"}), "inside the schema"),
    "dangling": (form(a={"$ref": "#/$defs/no"}), "not in the schema"),
    "deep": (deep(20), "levels deep"),
    "too deep for a parser": (deep(5000), "nested too deeply"),
    "bomb": (bomb(), "levels deep"),
    "huge": (form(**{f"f{i}": {"type": "string"} for i in range(MOST_FIELDS + 1)}), "too many"),
    "long": (form(a={"type": "string", "description": "x" * 300_000}), "characters"),
    "empty range": (form(a={"type": "number", "minimum": 3, "maximum": 2}), "contradicts itself"),
    "impossible choice": (form(a={"type": "number", "enum": ["red"]}), "contradicts itself"),
    "false": (form(a=False), "no value is valid"),
    "required but unknown": ({**form(a={"type": "string"}), "required": ["b"]}, "not among its properties"),
    "no schema": (form(a={"type": "colour"}), "not a valid JSON Schema"),
    "union": (form(a={"type": ["string", "number"]}), "one type"),
    "not": (form(a={"not": {}}), "cannot fill"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_schema_that_cannot_be_filled_gets_one_line(name: str) -> None:
    schema, rule = HOSTILE[name]
    with pytest.raises(UsageError) as error:
        form_schema(schema)
    assert rule in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 400


def test_a_slow_regular_expression_has_a_deadline() -> None:
    schema = form_schema(form(a={"type": "string", "pattern": "^(a+)+$"}))
    (field,) = schema.leaves
    assert not schema.allows(field, "a" * 60 + "!") and schema.allows(field, "aaa")


def test_a_file_is_read(tmp_path: Any) -> None:
    path = tmp_path / "fields.json"
    path.write_text(json.dumps(form(a={"type": "integer"})))
    assert [leaf.kind for leaf in form_schema(path).leaves] == ["number"]
    path.write_text("[" * 100_000)
    with pytest.raises(UsageError):
        form_schema(path)
