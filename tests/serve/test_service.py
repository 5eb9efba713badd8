"""The service as a client sees it, with a small model: every route, every limit, and what survives being killed."""

import asyncio
import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openpyxl import load_workbook

from tests.documents import small_model
from tests.documents.samples import pdf_bytes
from tests.serve.running import Running, running, until
from vcc.errors import UsageError
from vcc.serve import schemas
from vcc.serve.app import make_app
from vcc.serve.library import Library
from vcc.serve.settings import ServiceSettings

TOKEN = "a-token-of-some-length"
LINES = [[" ".join(small_model.text(8, seed).split()) for seed in range(start, start + 20)] for start in (0, 20)]
SECRET = "w1 w2 w3 w4"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model.saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def service(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    limits = ("--max-size", "1", "--max-pages", "3", "--max-questions", "5", "--body", "3", "--reading", "5")
    with running(tmp_path_factory.mktemp("service"), "--model", model, *limits) as one:
        yield one


@pytest.fixture(scope="module")
def client(service: Running) -> Iterator[httpx.Client]:
    with service.client() as one:
        yield one


@pytest.fixture(scope="module")
def pdf(service: Running) -> schemas.DocumentSchema:
    answer = service.upload(pdf_bytes(LINES, "Some words"), "../../etc/pass<wd>.pdf")
    assert answer.status_code == 202, answer.text
    return schemas.DocumentSchema(**answer.json())


def test_a_document_is_read_as_a_job(client: httpx.Client, pdf: schemas.DocumentSchema) -> None:
    assert (pdf.state, pdf.pages, pdf.name, pdf.title) == ("ready", 2, "pass<wd>.pdf", "Some words")
    assert schemas.DocumentSchema(**client.get(f"/v1/documents/{pdf.id}").json()) == pdf
    assert pdf.id in [one["id"] for one in client.get("/v1/documents").json()["documents"]]
    lines = client.get(f"/v1/documents/{pdf.id}/events").text.splitlines()
    assert json.loads(lines[0].removeprefix("data: "))["state"] == "ready"


def test_answers_are_spans_of_the_text_with_boxes(client: httpx.Client, pdf: schemas.DocumentSchema) -> None:
    asked = schemas.AskRequest(questions=["w5?", "w7 w9?"], top=2)
    answer = client.post(f"/v1/documents/{pdf.id}/ask", json=asked.model_dump())
    replies = schemas.RepliesSchema(**answer.json()).replies
    text = client.get(f"/v1/documents/{pdf.id}/text").json()["text"]
    assert [reply.question for reply in replies] == ["w5?", "w7 w9?"]
    for found in (one for reply in replies for one in reply.answers):
        assert text[found.start : found.end] == found.text
        assert found.boxes and found.boxes[0].page == found.page
        span = client.get(f"/v1/documents/{pdf.id}/span", params={"start": found.start, "end": found.end}).json()
        assert span["boxes"] == [box.model_dump() for box in found.boxes]


def test_the_heat_map_covers_the_document(client: httpx.Client, pdf: schemas.DocumentSchema) -> None:
    answer = client.post(f"/v1/documents/{pdf.id}/heatmap", json={"question": "w5?", "cells": 20})
    found = schemas.HeatmapSchema(**answer.json())
    assert len(found.starts) == 20 and found.starts == sorted(found.starts) and found.starts[0] == 0
    assert all(len(layer.heat) == 20 and max(layer.heat) <= 1 for layer in found.layers)


def test_a_review_becomes_a_table_and_spreadsheets(client: httpx.Client, pdf: schemas.DocumentSchema) -> None:
    listed = {"file": ("own.yaml", b"First: w5?\nSecond: w7?\n")}
    questions = client.post("/v1/reviews/questions", files=listed).json()
    assert [question["name"] for question in questions] == ["First", "Second"]
    started = client.post("/v1/reviews", json={"documents": [pdf.id], "questions": questions})
    assert started.status_code == 202
    place = f"/v1/reviews/{started.json()['id']}"
    last = client.get(f"{place}/events").text.strip().rpartition("data: ")[2]
    review = schemas.ReviewSchema(**json.loads(last))
    assert (review.state, review.done, review.total) == ("ready", 2, 2)
    (row,) = review.rows
    assert row.id == pdf.id and len(row.cells) == 2
    sheet = load_workbook(io.BytesIO(client.get(f"{place}/review.xlsx").content))["Review"]
    assert [cell.value for cell in sheet[1]] == ["Document", "First", "Second"]
    assert sheet["A2"].value == "pass<wd>.pdf"
    assert sheet["B2"].value == (row.cells[0][0].text if row.cells[0] else None)
    table = list(csv.reader(io.StringIO(client.get(f"{place}/review.csv").content.decode("utf-8-sig"))))
    assert table[0][:2] == ["document", "First"] and len(table) == 2


def test_what_is_deleted_is_gone(service: Running, client: httpx.Client) -> None:
    kept = service.log.parent / "kept"
    before = {path for path in kept.rglob("*") if path.is_file()}
    id = service.upload(small_model.text(50, 7).encode()).json()["id"]
    assert {path for path in kept.rglob("*") if path.is_file()} > before
    assert client.delete(f"/v1/documents/{id}").status_code == 204
    assert {path for path in kept.rglob("*") if path.is_file()} == before
    for path in ("", "/text", "/file", "/events"):
        assert client.get(f"/v1/documents/{id}{path}").status_code == 404
    assert client.post(f"/v1/documents/{id}/ask", json={"questions": ["w1?"]}).status_code == 404


def bomb() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"0" * 30_000_000)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "name", "code", "words"),
    [
        (b"", "a.txt", 415, "empty"),
        (b"\x7fELF\0\0\0", "a.txt", 415, "kind"),
        (b"plain", "a.pdf", 415, "name"),
        (b"PK\x03\x04 and more", "a.zip", 415, "ZIP"),
        (b"\x89PNG\r\n\x1a\n\0", "a.png", 415, "kind"),
        (b"%PDF-1.7 broken", "a.pdf", 422, "broken PDF"),
        (b"PK\x03\x04 and more", "a.docx", 422, "broken"),
        (b"w1 " * 400_000, "a.txt", 413, "limit"),
        (pdf_bytes([["w1"]] * 4), "a.pdf", 413, "4 pages, above the service's limit of 3"),
        (bomb(), "a.docx", 422, "limit"),
    ],
)
def test_a_file_that_is_not_taken_says_why(service: Running, data: bytes, name: str, code: int, words: str) -> None:
    answer = service.upload(data, name)
    assert (answer.status_code, words in answer.json()["error"]) == (code, True), answer.text


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"questions": ["w1?"] * 6}, 413),
        ({"questions": ["w" * 3000]}, 413),
        ({"questions": []}, 422),
        ({"questions": ["  ?"]}, 422),
        ({"questions": ["w1?"], "top": 0}, 422),
        ({"questions": "w1?"}, 422),
        ({"questions": ["w1?"], "path": "/etc/passwd"}, 422),
    ],
)
def test_wrong_questions_are_refused(
    client: httpx.Client, pdf: schemas.DocumentSchema, body: object, code: int
) -> None:
    answer = client.post(f"/v1/documents/{pdf.id}/ask", json=body)
    assert answer.status_code == code and answer.json()["error"]


def test_other_sites_and_other_names_are_refused(client: httpx.Client) -> None:
    assert client.get("/v1/documents", headers={"origin": "https://a.example"}).status_code == 403
    assert client.get("/v1/documents", headers={"host": "a.example"}).status_code == 403
    own = str(client.base_url).rstrip("/")
    assert client.get("/v1/documents", headers={"origin": own}).status_code == 200


def test_a_slow_body_is_not_waited_for(client: httpx.Client) -> None:
    def slowly() -> Iterator[bytes]:
        yield b"{"
        time.sleep(5)
        yield b"}"

    assert client.post("/v1/reviews", content=slowly()).status_code == 408


def test_pages_carry_no_inline_script_and_a_policy(client: httpx.Client) -> None:
    for path in ("/", "/docs"):
        page = client.get(path)
        assert page.status_code == 200 and "script-src 'self'" in page.headers["content-security-policy"]
        assert "style=" not in page.text and "onclick" not in page.text and "https://" not in page.text
        for script in page.text.split("<script")[1:]:
            assert script.partition(">")[2].startswith("</script>")
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/static/%2e%2e/app.py").status_code == 404


def test_watching(client: httpx.Client, pdf: schemas.DocumentSchema) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").status_code == 200
    assert client.get("/version").json()["limits"]["pages"] == 3
    counted = client.get("/metrics").text
    assert 'vcc_documents{state="ready"}' in counted and 'route="/v1/documents/{id}/ask"' in counted
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/documents", "/v1/documents/{id}/ask", "/v1/reviews", "/health"} <= paths.keys()
    assert "504" in paths["/v1/documents/{id}/ask"]["post"]["responses"]


def test_nothing_of_a_document_is_in_the_log(service: Running, client: httpx.Client) -> None:
    id = service.upload(SECRET.encode() * 9).json()["id"]
    client.post(f"/v1/documents/{id}/ask", json={"questions": ["w1 secret question?"]})
    log = service.log.read_text()
    assert " /v1/documents/{id}/ask 200 " in log
    assert "w1" not in log and "secret" not in log and id not in log


def test_a_document_whose_reader_is_killed_is_read_by_the_next(service: Running, client: httpx.Client) -> None:
    service.upload(b"w1 w2.")  # a reader is there and idle
    for child in service.children():
        os.kill(child, signal.SIGSTOP)  # so that the next file is caught in the middle
    id = service.upload(b"w3 w4 w5.", wait=0).json()["id"]
    until(lambda: client.get(f"/v1/documents/{id}").json()["state"] == "reading")
    time.sleep(0.3)
    for child in service.children():
        os.kill(child, signal.SIGKILL)
    entry = until(lambda: (e := client.get(f"/v1/documents/{id}").json())["state"] in ("failed", "ready") and e)
    assert (entry["state"], entry["error"]) == ("ready", "")
    assert service.upload(b"w3 w4 w5.").json()["state"] == "ready"


def test_documents_survive_the_service(model: str, tmp_path: Path) -> None:
    with running(tmp_path, "--model", model) as first:
        id = first.upload(small_model.text(200).encode()).json()["id"]
        with first.client() as client:
            answer = client.post(f"/v1/documents/{id}/ask", json={"questions": ["w5?"]}).json()
            half = client.post("/v1/documents", files={"file": ("b.txt", small_model.text(300).encode())}).json()["id"]
        first.process.kill()
        first.process.wait()
    (tmp_path / "kept" / "documents" / ("0" * 32)).mkdir()  # what a kill in the middle of an upload leaves
    with running(tmp_path, "--model", model) as second, second.client() as client:
        assert client.post(f"/v1/documents/{id}/ask", json={"questions": ["w5?"]}).json() == answer
        until(lambda: client.get(f"/v1/documents/{half}").json()["state"] == "ready")
        assert len(client.get("/v1/documents").json()["documents"]) == 2


def test_a_folder_belongs_to_one_service(service: Running, model: str) -> None:
    folder = service.log.parent / "kept"
    command = [sys.executable, "-m", "vcc.cli", "serve", "--port", "0", "--folder", str(folder), "--model", model]
    second = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert second.returncode == 1 and "in use by another service" in second.stderr


def test_a_fault_has_our_words(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: object) -> list[object]:
        raise RuntimeError("secret words")

    guard = make_app(ServiceSettings(tmp_path, model=model))
    monkeypatch.setattr(Library, "all", fails)
    transport = httpx.ASGITransport(guard, raise_app_exceptions=False)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get("/v1/documents")

    answer = asyncio.run(ask())
    assert answer.status_code == 500 and "secret" not in answer.text
    assert answer.json()["error"] == f"a fault of the service; its log has request {answer.headers['x-request-id']}"


def test_a_token_guards_every_route_but_health(model: str, tmp_path: Path) -> None:
    with running(tmp_path, "--model", model, VCC_TOKEN=TOKEN) as service, service.client() as client:
        paths = client.get("/openapi.json", headers={"x-api-key": TOKEN}).json()["paths"]
        routes = [(method, path) for path, methods in paths.items() for method in methods]
        for method, path in [
            *routes,
            ("get", "/"),
            ("get", "/docs"),
            ("get", "/openapi.json"),
            ("get", "/static/main.js"),
        ]:
            answer = client.request(method, path.replace("{id}", "0" * 32))
            assert answer.status_code == (200 if path == "/health" else 401), (method, path)
        for headers in ({"authorization": f"Bearer {TOKEN}"}, {"x-api-key": TOKEN}):
            assert client.get("/ready", headers=headers).status_code == 200
        assert client.get("/ready", auth=("me", TOKEN)).status_code == 200
        for wrong in (TOKEN[:-1], TOKEN + "x", "", "\xff"):
            assert client.get("/ready", headers={"x-api-key": wrong.encode("latin-1")}).status_code == 401
        assert "www-authenticate" in client.get("/").headers


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "a.example"])
def test_another_address_needs_a_token(host: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a token"):
        ServiceSettings(tmp_path, host=host)
    assert ServiceSettings(tmp_path, host=host, token=TOKEN).host == host
    assert TOKEN not in repr(ServiceSettings(tmp_path, token=TOKEN))
    with pytest.raises(UsageError, match="at least 16"):
        ServiceSettings(tmp_path, token="short")
