"""The same answer through every door: the same nine names, the same values."""

import csv
import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from openpyxl import load_workbook

import vcc
from tests.deep import deep_but
from tests.documents import small_model
from tests.documents.samples import pdf_bytes
from tests.serve.running import running
from vcc.commands.ask import ask
from vcc.commands.options import call
from vcc.commands.review import review
from vcc.documents.question_list import read_questions
from vcc.fleet.job import Job
from vcc.fleet.run import run
from vcc.fleet.sources import find_items

NAMES = ["text", "start", "end", "score", "place", "page", "sentence", "sure", "boxes"]
QUESTION = "w5 w7?"
LINES = [[" ".join(small_model.text(8, seed).split()) for seed in range(start, start + 20)] for start in (0, 20)]


@pytest.fixture(scope="module", params=deep_but(["sure"], ["sure", "doubtful"]))
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The best answer to one question about one PDF, by door."""
    folder = tmp_path_factory.mktemp("doors")
    model, file = str(folder / "model"), folder / "words.pdf"
    made = small_model.model()
    small_model.set_qa(made, threshold=0.0 if request.param == "sure" else 1.0)
    made.save_pretrained(model)
    small_model.tokenizer().save_pretrained(model)
    file.write_bytes(pdf_bytes(LINES, "Some words"))
    own = folder / "own.yaml"
    own.write_text(f"Mine: {QUESTION}\n")

    doors: dict[str, Any] = {}
    (reply,) = vcc.read(file).ask_all([QUESTION], top=1, model=model)
    (answer,) = reply.all_answers
    assert (reply.answers == (answer,)) == (request.param == "sure") == answer.sure
    doors["Python"] = {name: getattr(answer, name) for name in vars(answer)}
    doors["Python"]["boxes"] = [box._asdict() for box in answer.boxes]

    asked = printed(ask, file, QUESTION, "--model", model, "--top", 1, "--no-cache", "--json")
    doors["vcc ask --json"] = only(only(asked["replies"])["answers"])
    reviewed = printed(review, file, "--model", model, "--questions", own, "--no-cache", "--json")
    doors["vcc review --json"] = only(only(reviewed["replies"])["answers"])
    (folder / "in").mkdir()
    (folder / "in" / file.name).write_bytes(file.read_bytes())
    many = printed(review, folder / "in", "--model", model, "--questions", own, "--no-cache", "--json")
    doors["vcc review FOLDER --json"] = only(only(only(many["rows"])["cells"]))

    items, job = find_items([str(file)]).items, Job("ask", model, read_questions(own))
    for suffix in ("parquet", "xlsx", "csv"):
        run(job, items, folder / f"t.{suffix}")
    row = only(pq.read_table(folder / "t.parquet").to_pylist())
    doors["Parquet"] = {name: row[name] for name in row if name in NAMES}
    sheet = load_workbook(folder / "t.xlsx")["Answers"]
    head, values = ([cell.value for cell in line] for line in sheet.iter_rows())
    row = dict(zip(head, values, strict=True))
    doors["XLSX"] = {name: row[name] for name in head[3:]} | {"boxes": json.loads(row["boxes"])}

    with running(folder / "service", "--model", model) as service, service.client() as client:
        id = service.upload(file.read_bytes(), file.name).json()["id"]
        replies = client.post(f"/v1/documents/{id}/ask", json={"questions": [QUESTION], "top": 1}).json()["replies"]
        doors["HTTP ask"] = only(only(replies)["answers"])
        doors["HTTP review"] = only(only(only(reviewed_by(client, id)["rows"])["cells"]))
        schemas = client.get("/openapi.json").json()["components"]["schemas"]
        doors["OpenAPI"] = list(schemas["AnswerSchema"]["properties"])
    doors["CSV"] = list(csv.reader(io.StringIO((folder / "t.csv").read_text("utf-8-sig"), newline="")))
    return doors


def printed(command: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    out = io.StringIO()
    with redirect_stdout(out):
        call(command, [str(argument) for argument in arguments], f"vcc {command.__name__}")
    return json.loads(out.getvalue())


def reviewed_by(client: httpx.Client, id: str) -> dict[str, Any]:
    asked = {"documents": [id], "questions": [{"question": QUESTION, "name": "Mine"}]}
    place = f"/v1/reviews/{client.post('/v1/reviews', json=asked).json()['id']}"
    client.get(f"{place}/events")  # until it is finished
    return client.get(place).json()


def only(values: list[Any]) -> Any:
    (value,) = values
    return value


@pytest.mark.parametrize(
    "door",
    [
        "vcc ask --json",
        "vcc review --json",
        "vcc review FOLDER --json",
        "Parquet",
        "XLSX",
        "HTTP ask",
        "HTTP review",
    ],
)
def test_every_door_gives_the_same_answer(found: dict[str, Any], door: str) -> None:
    expected, given = found["Python"], found[door]
    assert list(expected) == list(given) == NAMES
    # Processes may run on another number of threads, which may round differently.
    assert given["score"] == pytest.approx(expected["score"], abs=1e-6)
    assert {**given, "score": 0} == {**expected, "score": 0}
    assert given["boxes"] and given["page"] == given["boxes"][0]["page"] and given["place"] == f"page {given['page']}"


def test_the_service_describes_the_same_names(found: dict[str, Any]) -> None:
    assert found["OpenAPI"] == NAMES


def test_csv_has_the_same_values_on_one_line(found: dict[str, Any]) -> None:
    (head, row), expected = found["CSV"], found["Python"]
    assert head[1:6] == ["Mine", "Mine (score)", "Mine (place)", "Mine (sentence)", "Mine (sure)"]
    assert row[1:6] == [
        " ".join(expected["text"].split()),
        f"{expected['score']:.4f}",
        expected["place"],
        expected["sentence"],
        str(expected["sure"]).lower(),
    ]
