"""`vcc chat`, as a person types it."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.chat import models
from tests.documents import small_model
from vcc.cli import guarded
from vcc.commands.chat import chat
from vcc.commands.options import call
from vcc.documents.answer import answer_at


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    llm, finder = models.saved(tmp_path_factory.mktemp("llm")), small_model.saved(tmp_path_factory.mktemp("finder"))
    return ["--model", llm, "--finder", finder]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "words.txt"
    path.write_text(small_model.text(300))
    return str(path)


def run(*arguments: Any) -> int:
    return guarded(lambda: call(chat, [str(argument) for argument in arguments], "vcc chat"))


def test_chat_prints_each_answer_and_the_passages_it_rests_on(
    file: str, folders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(file, "w1 w2?", "w3?", *folders, "--context", 80, "--longest", 5) == 0
    shown = capsys.readouterr().out
    assert shown.index("w1 w2?") < shown.index("[1]") < shown.index("w3?")
    assert "into the text" in shown


def test_chat_speaks_json(file: str, folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file, "w1 w2?", *folders, "--context", 80, "--longest", 5, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    [reply] = found["replies"]
    assert reply["question"] == "w1 w2?" and isinstance(reply["answer"], str)
    text = Path(file).read_text().strip("\n")
    for passage in reply["passages"]:
        assert " ".join(passage["text"].split()) in " ".join(text.split())
        best = passage["best"]
        assert text[best["start"] : best["end"]] == best["text"] and best["text"] in passage["text"]


def test_without_a_model_sentences_are_quoted_and_no_language_model_is_loaded(
    file: str, folders: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcc.chat.model.load_chat_model", lambda *_: pytest.fail("loaded a language model"))
    monkeypatch.setattr("vcc.chat.said.find_answers", lambda document, question: (certain(document), 0.5))
    assert run(file, "w1 w2?", *folders[2:], "--json") == 0
    [reply] = json.loads(capsys.readouterr().out)["replies"]
    assert reply["quoted"] and reply["unsupported"] == []
    assert reply["answer"] and reply["answer"] in " ".join(Path(file).read_text().split())
    assert run(file, "w1 w2?", *folders[2:]) == 0
    assert reply["answer"][:40] in " ".join(capsys.readouterr().out.split())


def certain(document: Any) -> tuple[Any, ...]:
    return (answer_at(document.content, 40, 50, 0.9), answer_at(document.content, 100, 120, 0.1))


def test_what_a_model_invents_is_withheld(
    file: str, folders: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    invented = "The survival rate is 98 per cent in Nowhere."
    monkeypatch.setattr("vcc.chat.model.ChatModel.reply", lambda *_: invented)
    assert run(file, "w1 w2?", *folders, "--context", 80) == 0
    shown = capsys.readouterr().out
    assert "survival" not in shown and "1 withheld" in shown and "[1]" in shown
    assert run(file, "w1 w2?", *folders, "--context", 80, "--json") == 0
    [reply] = json.loads(capsys.readouterr().out)["replies"]
    assert reply["answer"] == "" and reply["unsupported"] == [invented] and not reply["quoted"]


def test_every_sentence_that_a_model_writes_is_marked(
    file: str, folders: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quoted = " ".join(Path(file).read_text().replace(".", "").split()[:12])
    monkeypatch.setattr("vcc.chat.model.ChatModel.reply", lambda *_: f"{quoted}.")
    assert run(file, "w1 w2?", *folders, "--context", 80) == 0
    assert "[supported]" in capsys.readouterr().out
    assert run(file, "w1 w2?", *folders, "--context", 80, "--json") == 0
    [reply] = json.loads(capsys.readouterr().out)["replies"]
    assert [(one["verdict"], one["by"]) for one in reply["verdicts"]] == [("supported", "exact quote")]


def test_a_conversation_goes_on_until_an_empty_line(
    file: str, folders: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = iter(["w1 w2?", "w3?", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(asked))
    monkeypatch.setattr("sys.stdin", type("Terminal", (io.StringIO,), {"isatty": lambda self: True})())
    assert run(file, *folders, "--context", 80, "--longest", 5) == 0
    assert capsys.readouterr().out.count("[1]") == 2
    assert next(asked, None) is None


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (["w1", "--context", "3"], "--context is 3"),
        (["w1", "--longest", "0"], "--longest is 0"),
        ([], "no question"),
        (["  "], "has no words"),
        (["w1", "--model", "nowhere"], "no config.json"),
        (["w1", "--finder", "nowhere"], "no config.json"),
    ],
)
def test_mistakes_are_told_in_one_line(
    given: list[str], rule: str, file: str, folders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    named = [] if {"--model", "--finder"} & set(given) else folders
    assert run(file, *given, *named) == 2
    told = capsys.readouterr().err
    assert rule in told and "Traceback" not in told and len(told.strip().splitlines()) == 1


def test_a_model_that_is_none_and_a_file_that_is_none_are_told(
    file: str, folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text('{"model_type": "llama"}')
    assert run(file, "w1", "--finder", folders[3], "--model", broken) == 2
    (tmp_path / "empty.txt").write_text("")
    assert run(tmp_path / "empty.txt", "w1", *folders) == 2
    assert run(tmp_path / "missing.txt", "w1", *folders) == 2
    # A question-answering model is no language model that talks.
    assert run(file, "w1", "--finder", folders[3], "--model", folders[3]) == 2
    assert "Traceback" not in capsys.readouterr().err
