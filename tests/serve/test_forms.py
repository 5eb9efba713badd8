"""Forms and verdicts through the running service: its routes give what a document gives, and bad schemas one line."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openpyxl import load_workbook

from tests.documents import small_model
from tests.serve.running import Running, running
from vcc.documents.document import Document, read_document

pytest.importorskip("jsonschema")
pytest.importorskip("dateparser")

TEXT = small_model.text(400, 3)
FIELDS = {"type": "object", "properties": {"w5": {"type": "string"}, "w7": {"type": ["string", "null"]}}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model.saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def service(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("service"), "--model", model, "--max-questions", "20") as one:
        yield one


@pytest.fixture(scope="module")
def client(service: Running) -> Iterator[httpx.Client]:
    with service.client() as one:
        yield one


@pytest.fixture(scope="module")
def id(service: Running) -> str:
    return str(service.upload(TEXT.encode(), "a.txt").json()["id"])


@pytest.fixture(scope="module")
def document(model: str, tmp_path_factory: pytest.TempPathFactory) -> Document:
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_text(TEXT)
    return Document(read_document(path).content, model)


def test_extract_gives_what_the_document_gives(client: httpx.Client, id: str, document: Document) -> None:
    found = client.post(f"/v1/documents/{id}/extract", json={"schema": FIELDS, "threshold": 0}).json()
    expected = document.extract(FIELDS, 0.0).as_dict()
    assert found["values"] == expected["values"] and found["missing"] == expected["missing"]
    assert [one["path"] for one in found["fields"]] == ["w5", "w7"]
    for field, other in zip(found["fields"], expected["fields"], strict=True):
        assert field["evidence"]["text"] == TEXT[field["evidence"]["start"] : field["evidence"]["end"]]
        assert field["evidence"]["start"] == other["evidence"]["start"]


def test_the_spreadsheet_of_a_form_shows_its_values(client: httpx.Client, id: str) -> None:
    asked = {"schema": FIELDS, "threshold": 0}
    values = client.post(f"/v1/documents/{id}/extract", json=asked).json()["values"]
    answer = client.post(f"/v1/documents/{id}/form.xlsx", json=asked)
    assert answer.status_code == 200 and "form.xlsx" in answer.headers["content-disposition"]
    sheet = load_workbook(io.BytesIO(answer.content))["Review"]
    assert [cell.value for cell in sheet[1]] == ["Document", "w5", "w7"]
    assert [cell.value for cell in sheet[2]] == ["a.txt", values["w5"], values["w7"]]


def test_verify_tells_a_quote_from_a_changed_one(client: httpx.Client, id: str) -> None:
    quoted = " ".join(TEXT.split()[10:20]).replace(".", "")
    changed = quoted.split()
    changed[5] = "77"
    found = client.post(f"/v1/documents/{id}/verify", json={"text": f"{quoted}\n\n{' '.join(changed)}"}).json()
    assert found["head"] is False
    first, second = found["verdicts"]
    assert (first["verdict"], first["by"]) == ("supported", "exact quote")
    assert second["verdict"] == "contradicted" and second["passage"]["start"] >= 0


DEEP: Any = {"type": "string"}
for _ in range(30):
    DEEP = {"type": "object", "properties": {"a": DEEP}}
RECURSIVE = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/node"}},
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
}
DOUBLING = {  # 2^20 fields in a kilobyte
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/n0"}},
    "$defs": {
        **{
            f"n{i}": {
                "type": "object",
                "properties": {"x": {"$ref": f"#/$defs/n{i + 1}"}, "y": {"$ref": f"#/$defs/n{i + 1}"}},
            }
            for i in range(20)
        },
        "n20": {"type": "string"},
    },
}
HUGE = {"type": "object", "properties": {f"f{i}": {"type": "string"} for i in range(101)}}
FILE = "file://localhost/private.json"
HOSTILE = {
    "recursive": RECURSIVE,
    "doubling": DOUBLING,
    "deep": DEEP,
    "huge": HUGE,
    "long": {"type": "object", "properties": {"a": {"type": "string", "description": "x" * 300_000}}},
    "contradictory": {"type": "object", "properties": {"a": {"type": "number", "minimum": 5, "maximum": 1}}},
    "no choice": {"type": "object", "properties": {"a": {"type": "string", "enum": [1, 2]}}},
    "false": {"type": "object", "properties": {"a": False}},
    "outside": {"type": "object", "properties": {"a": {"$ref": "https://example.com/schema.json"}}},
    "file": {"type": "object", "properties": {"a": {"$ref": FILE}}},
    "not a schema": {"type": "object", "properties": {"a": {"type": "wrong"}}},
    "no object": {"type": "array", "items": {"type": "string"}},
    "empty": {},
    "self": {"$ref": "#"},
    "circle": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_gets_one_clear_line(client: httpx.Client, id: str, name: str) -> None:
    answer = client.post(f"/v1/documents/{id}/extract", json={"schema": HOSTILE[name]})
    assert answer.status_code in (413, 422), answer.text
    error = answer.json()["error"]
    assert error and "\n" not in error and len(error) < 400 and "private" not in error.replace(FILE, "")


@pytest.mark.parametrize(
    ("route", "body", "code"),
    [
        ("extract", {}, 422),
        ("extract", {"schema": []}, 422),
        ("extract", {"schema": FIELDS, "threshold": 2}, 422),
        ("extract", {"schema": {**FIELDS, "properties": {f"f{i}": {"type": "string"} for i in range(30)}}}, 413),
        ("verify", {}, 422),
        ("verify", {"text": ""}, 422),
        ("verify", {"text": "..."}, 422),
        ("verify", {"text": 5}, 422),
        ("verify", {"text": "It rains. " * 30}, 413),
        ("verify", {"text": "w" * 30_000}, 422),
        ("verify", {"text": "\ud800"}, 422),
    ],
)
def test_a_bad_request_names_the_rule(client: httpx.Client, id: str, route: str, body: Any, code: int) -> None:
    sent = json.dumps(body).encode()
    answer = client.post(f"/v1/documents/{id}/{route}", content=sent, headers={"content-type": "application/json"})
    assert answer.status_code == code and answer.json()["error"], answer.text


def test_a_pattern_that_never_ends_costs_little(client: httpx.Client, id: str) -> None:
    schema = {"type": "object", "properties": {"w5": {"type": "string", "pattern": "^(([a-z0-9 ])+.)+[A-Z]([a-z ])+$"}}}
    answer = client.post(f"/v1/documents/{id}/extract", json={"schema": schema, "threshold": 0})
    assert answer.status_code == 200 and answer.json()["values"] == {}


@pytest.mark.parametrize("route", ["extract", "form.xlsx", "verify"])
def test_a_document_that_is_not_there_is_404(client: httpx.Client, route: str) -> None:
    body = {"text": "It rains."} if route == "verify" else {"schema": FIELDS}
    assert client.post(f"/v1/documents/{'0' * 32}/{route}", json=body).status_code == 404


def test_nothing_of_this_is_a_fault(service: Running, client: httpx.Client, id: str, tmp_path: Path) -> None:
    """The last test of this file: the log of all of them has no traceback."""
    assert client.get("/health").status_code == 200
    assert "Traceback" not in service.log.read_text()
