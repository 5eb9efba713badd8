"""`vcc.folder` takes the road of the commands: the same collection, followed as files come, change and go."""

import json
from pathlib import Path
from typing import Any

import pytest

import vcc
from tests.documents import small_model
from tests.fleet import collections
from vcc.cli import main
from vcc.documents.finding import Sketch
from vcc.errors import UsageError

QUESTION = "w1 w2 ?"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return collections.model_in_this_process(tmp_path, monkeypatch)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return collections.texts(tmp_path / "in", 4)


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The sketches that are made."""
    made: list[Path] = []
    save = Sketch.save
    monkeypatch.setattr(Sketch, "save", lambda self, path: (made.append(path), save(self, path)))
    return made


def test_a_folder_finds_and_answers_what_the_commands_do(
    model: str, texts: Path, sketched: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = vcc.folder(texts, model)
    assert len(found) == 4 == len(sketched) and not found.failed
    hits = found.find(QUESTION, top=3)
    assert [Path(hit.path) for hit in hits] == [texts / hit.document for hit in hits]
    assert main(["find", str(texts), QUESTION, "--model", model, "--top", "3", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["documents"]
    assert [(one["document"], one["match"]) for one in listed] == [(hit.document, hit.match) for hit in hits]
    answers = found.ask(QUESTION, top=2, documents=3)
    assert main(["ask", str(texts), QUESTION, "--model", model, "--top", "2", "--documents", "3", "--json"]) == 0
    documents = json.loads(capsys.readouterr().out)["replies"][0]["documents"]
    every = sorted((-own["score"], one["document"]) for one in documents for own in one["answers"])
    assert [(-one.answer.score, one.document) for one in answers] == every[: len(answers)]
    assert len(answers) == min(2, len(every)) and len(sketched) == 4, "nothing was read again"


def test_files_that_come_change_and_go_are_followed(model: str, texts: Path, sketched: list[Path]) -> None:
    vcc.folder(texts, model)
    (texts / "0.txt").unlink()
    (texts / "1.txt").write_text(small_model.text(333, 77))
    (texts / "copy.txt").write_text((texts / "2.txt").read_text())  # known content under another name
    (texts / "bad.pdf").write_bytes(b"%PDF-1.4 and nothing more")
    sketched.clear()
    found = vcc.folder(texts, model)
    assert {hit.document for hit in found.find(QUESTION)} == {"1.txt", "2.txt", "3.txt", "copy.txt"}
    assert len(set(sketched)) == 1, "only the text that changed was sketched"
    [failed] = found.failed
    assert failed.startswith("bad.pdf: ")


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda texts, model: vcc.folder(texts / "0.txt", model), "is not a folder"),
        (lambda texts, model: vcc.folder(texts, model).find(" "), "holds no word"),
        (lambda texts, model: vcc.folder(texts, model).find(QUESTION, top=0), "top is 0: it must be at least 1"),
        (lambda texts, model: vcc.folder(texts, model).ask(QUESTION, documents=0), "documents is 0"),
    ],
)
def test_what_cannot_be_is_said(call: Any, rule: str, texts: Path, model: str) -> None:
    with pytest.raises(UsageError, match=rule):
        call(texts, model)
