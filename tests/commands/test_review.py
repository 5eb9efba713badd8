"""`vcc review --thorough` reads every window with every question."""

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

import vcc
from tests.documents import small_model
from vcc.cli import main
from vcc.documents.document import Document
from vcc.documents.shipped import load_asker
from vcc.errors import DocumentError
from vcc.fleet.job import Job
from vcc.qa.second_look import every_passage, room_for_passage

QUESTIONS = ["w1 w2 ?", "w3 w4 w5 w6 ?"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model.saved(tmp_path_factory.mktemp("model"))


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    path = tmp_path / "contract.txt"
    path.write_text(small_model.text(120), encoding="utf-8")
    return path


def every_window(path: Path, model: str) -> int:
    """The windows that cover a text, with each question."""
    qa, tokens = load_asker(model).qa, vcc.read(path)
    n = Document(tokens.content, model).index().tokens
    return sum(len(every_passage(n, room_for_passage(qa.ids_of(question), qa.windows))) for question in QUESTIONS)


def reviewed(capsys: pytest.CaptureFixture[str], given: list[str]) -> dict[str, Any]:
    assert main(given) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_command_the_folder_and_the_table_read_the_same_windows(
    model: str, contract: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = contract.parent / "questions.yaml"
    asked.write_text("\n".join(f'- "{question}"' for question in QUESTIONS), encoding="utf-8")
    given = ["review", str(contract), "--questions", str(asked), "--model", model, "--no-cache", "--json"]
    usual, thorough = reviewed(capsys, given), reviewed(capsys, [*given, "--thorough"])
    read, usually = (one["facts"]["passages_read_again"] for one in (thorough, usual))
    assert read == every_window(contract, model) > usually
    spans = [[answer["start"] for answer in reply["answers"]] for reply in thorough["replies"]]
    assert spans != [[answer["start"] for answer in reply["answers"]] for reply in usual["replies"]]

    folder = reviewed(capsys, ["review", str(contract.parent), *given[2:], "--thorough"])
    [row] = [row for row in folder["rows"] if not row["error"] and row["document"] == "contract.txt"]
    found = [reply["answers"][0]["text"] for reply in thorough["replies"]]
    assert [cell[0]["text"] for cell in row["cells"]] == found

    table = vcc.review(contract, QUESTIONS, model=model, thorough=True)
    assert isinstance(table, pandas.DataFrame) and list(table[table["rank"] == 1]["text"]) == found


def test_results_of_the_usual_reading_are_not_taken_for_thorough_ones() -> None:
    usual, thorough = Job("ask"), Job("ask", thorough=True)
    assert usual.fingerprint != thorough.fingerprint and "thorough" not in usual.settings()


def test_a_text_that_is_not_held_in_memory_is_refused(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setattr("vcc.documents.index.LONG", 100)
    document = Document(small_model.document(), model)
    assert document.ask_all(QUESTIONS[:1])
    with pytest.raises(DocumentError, match="characters: at most 100 are read thoroughly"):
        document.ask_all(QUESTIONS[:1], thorough=True)


def test_a_text_that_is_too_long_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setattr("vcc.documents.index.LONG", 100)
    monkeypatch.setattr(Document, "index", lambda *_: pytest.fail("it was read"))
    with pytest.raises(DocumentError, match="are read thoroughly"):
        Document(small_model.document(), model).ask_all(QUESTIONS[:1], thorough=True)
