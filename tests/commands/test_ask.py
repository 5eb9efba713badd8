"""The commands on documents, as a person types them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.documents import small_model
from vcc.cli import guarded
from vcc.commands.ask import ask
from vcc.commands.index import index
from vcc.commands.options import call
from vcc.commands.review import review
from vcc.commands.see import see
from vcc.documents.asker import Asker
from vcc.documents.shipped import loaded
from vcc.qa.clauses import CLAUSES


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model.saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "vcc" / "indexes"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "words.txt"
    path.write_text(small_model.text(300))
    return str(path)


def run(function: Callable[..., Any], *arguments: Any) -> int:
    return guarded(lambda: call(function, [str(argument) for argument in arguments], f"vcc {function.__name__}"))


def test_ask_prints_answers_and_how_the_document_was_read(
    file: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(lambda: ask(file, ("w1 w2?", "w3?"), top=2, model=model)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.index("w1 w2?") < shown.index("w3?")
    for word in ("none cut", "rows", "compression", "reading", "asking"):
        assert word in shown


def test_ask_speaks_json_and_writes_a_page(file: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ask, file, "w1 w2?", "--model", model, "--top", 2, "--html", "page.html", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    text = Path(file).read_text()
    [reply] = found["replies"]
    assert reply["question"] == "w1 w2?" and len(reply["answers"]) == 2
    for answer in reply["answers"]:
        assert text[answer["start"] : answer["end"]] == answer["text"]
        assert " ".join(answer["text"].split()) in answer["sentence"]
    assert found["facts"]["tokens"] >= 300 and found["facts"]["tokens_cut"] == 0
    page = Path("page.html").read_text()
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    assert "http" not in page.replace("http://www.w3.org", "") and not Path(".page.html.writing").exists()
    assert {path.name for path in Path().iterdir()} == {"cache", "page.html", "words.txt"}, "nothing is left aside"


def test_the_second_ask_does_not_read_again_and_no_cache_keeps_nothing(
    file: str, model: str, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = [file, "w1", "--model", model, "--json"]
    assert run(ask, *start, "--no-cache") == 0
    assert not cache.exists()
    first = json.loads(capsys.readouterr().out)
    assert run(ask, *start) == 0
    assert json.loads(capsys.readouterr().out)["facts"]["reading_seconds"] > 0
    monkeypatch.setattr(Asker, "index", lambda *_: pytest.fail("the document was read again"))
    assert run(ask, *start) == 0
    last = json.loads(capsys.readouterr().out)
    assert last["replies"] == first["replies"] and last["facts"]["reading_seconds"] == 0


def test_review_asks_every_clause_and_writes_a_report(
    file: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(review, file, "--model", model) == 0
    assert Path("words.review.html").is_file()
    capsys.readouterr()
    assert run(review, file, "--model", model, "--json", "--html", "other.html") == 0
    replies = json.loads(capsys.readouterr().out)["replies"]
    assert [reply["name"] for reply in replies] == [clause.name for clause in CLAUSES] and len(replies) == 41
    assert all(clause.group in Path("other.html").read_text() for clause in CLAUSES)


def test_review_of_a_folder_is_one_table(
    file: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "contracts"
    (folder / "old").mkdir(parents=True)
    (folder / "a.txt").write_text(Path(file).read_text())
    (folder / "old" / "b.md").write_text(Path(file).read_text())
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    (folder / "photo.jpg").write_bytes(b"")
    Path("own.yaml").write_text("First: w5?\nSecond: w7?\n")
    start = [str(folder), "--model", model, "--questions", "own.yaml"]
    assert run(review, *start, "--json", "--out", "all.csv") == 0
    out = json.loads(capsys.readouterr().out)
    assert [row["document"] for row in out["rows"]] == ["a.txt", "broken.pdf", "old/b.md"]
    assert "broken PDF" in out["rows"][1]["error"]
    assert out["rows"][0]["cells"] == out["rows"][2]["cells"] and len(out["rows"][0]["cells"]) == 2
    assert Path("all.csv").read_text(encoding="utf-8-sig").startswith("document,First,")
    assert run(review, *start) == 0
    assert "old/b.md" in capsys.readouterr().out
    assert run(review, *start, "--html", "x.html") == 2 and run(review, *start, "--out", "x.ods") == 2
    assert run(review, str(folder / "broken.pdf"), str(folder / "broken.pdf"), "--model", model) == 1


def test_see_draws_the_map_three_times(file: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    start = [file, "w5?", "--model", model]
    assert run(see, *start, "--html", "map.html", "--png", "map.png") == 0
    shown = capsys.readouterr().out
    assert "layer 2" in shown and "layer 3" in shown and "none cut" in shown
    assert Path("map.png").read_bytes().startswith(b"\x89PNG") and "layer 3" in Path("map.html").read_text()
    assert run(see, *start, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    opened = [one["openness"] for one in found["passages"]]
    assert opened and opened[0] == max(opened) > 0
    assert run(see, *start, "--png", "map.jpg") == 2


def test_without_a_question_a_person_is_prompted_until_an_empty_line(
    file: str, model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["w1 w2?", "w3?", ""])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    assert guarded(lambda: ask(file, (), model=model)) == 0
    shown = capsys.readouterr().out
    assert next(typed, "nothing") == "nothing" and shown.count(" s\n") == 2 and "An empty line quits" in shown


def test_a_long_text_is_read_once_also_when_questions_are_typed(
    file: str, model: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcc.documents.index.LONG", 500)  # characters; its index is then on disk
    assert run(ask, file, "w1 w2?", "--model", model, "--json") == 0
    (kept,) = cache.iterdir()
    files = {path.name for path in kept.iterdir()}
    assert "shape.json" in files
    typed = iter(["w1 w2?", "w3?", ""])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    monkeypatch.setattr("vcc.qa.long_tree.read_once", lambda *_: pytest.fail("the document was read again"))
    assert run(ask, file, "--model", model) == 0
    assert next(typed, "nothing") == "nothing" and {path.name for path in kept.iterdir()} == files


def test_index_keeps_lists_and_clears(
    file: str, model: str, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert guarded(lambda: index((file,), model=model)) == 0
    assert "tokens/s" in capsys.readouterr().out and len(list(cache.iterdir())) == 1
    assert guarded(lambda: index((file,), model=model)) == 0
    assert "already indexed" in capsys.readouterr().out
    assert guarded(lambda: index((), list=True)) == 0
    shown = capsys.readouterr().out
    assert "words" in shown and "1 index," in shown and "kB" in shown and not shown.count("  \n")
    assert guarded(lambda: index((), clear=True)) == 0
    assert "removed 1 index," in capsys.readouterr().out and list(cache.iterdir()) == []


def test_what_is_asked_wrongly_exits_with_2_and_says_why(
    file: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcc.documents.shipped.SHIPPED", tmp_path / "nowhere")
    monkeypatch.setattr("vcc.documents.shipped.loaded", loaded.__wrapped__)  # no model that another test has loaded
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 4)
    for work, word in (
        (lambda: ask("nowhere.txt", ("w1",), model=model), "no such file"),
        (lambda: ask("empty.txt", ("w1",), model=model), "empty.txt"),
        (lambda: review(("binary.txt",), model=model), "binary.txt"),
        (lambda: ask(file, (), model=model), "ask at least one"),
        (lambda: see(file, " ", model=model), "has no words"),
        (lambda: ask(file, ("w1",), top=0, model=model), "--top is 0"),
        (lambda: see(file, "w1", png=Path("away/map.png"), model=model), "no folder away"),
        (lambda: ask(file, ("w1",)), "--model"),
        (lambda: ask(file, ("w1",), model=str(tmp_path)), "no config.json"),
        (lambda: index(()), "--list and --clear"),
        (lambda: index((file,), clear=True), "--list and --clear"),
        (lambda: index(("nowhere.txt",), model=model), "no such file"),
    ):
        assert guarded(work) == 2, word
        assert word in capsys.readouterr().err


def test_interrupted_reading_leaves_no_index(
    file: str, model: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vcc.qa.long_tree.read_once", interrupted)
    assert guarded(lambda: ask(file, ("w1",), model=model)) == 130
    assert not cache.exists() or not list(cache.iterdir())


def test_what_is_wrong_with_a_file_is_told_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcc.documents.document.load_asker", lambda *_: pytest.fail("a model was loaded"))
    for work in (
        lambda: ask("nowhere.txt", ("w1",)),
        lambda: review(("nowhere.txt",)),
        lambda: see("nowhere.txt", "w1"),
    ):
        assert guarded(work) == 2


def test_a_bug_is_not_told_as_a_wrong_command_line(
    file: str, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Asker, "replies_to", broken)
    assert guarded(lambda: ask(file, ("w1",), model=model)) == 1
    assert "this is a bug in vcc" in (said := capsys.readouterr().err) and "ValueError: a bug" in said


def test_pages_in_place_of_folders_and_questions_without_words_are_refused(
    file: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for question, page, word in (
        ("w1", tmp_path, "it is a folder"),
        ("w1", tmp_path / "no" / "page.html", "there is no folder"),
        ("\u200b", None, "has no words"),
        ("w1 \udcff", None, "not valid UTF-8"),
    ):
        assert guarded(lambda: ask(file, (question,), html=page, model=model)) == 2  # noqa: B023
        assert word in capsys.readouterr().err


def test_a_link_where_a_page_is_written_is_replaced_not_followed(file: str, model: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("years of work")
    for name in ("page.html", ".page.html.writing"):
        (tmp_path / name).symlink_to("precious")
    ask(file, ("w1",), html=tmp_path / "page.html", model=model)
    assert (tmp_path / "precious").read_text() == "years of work"
    assert "<html" in (tmp_path / "page.html").read_text()[:200] and not (tmp_path / "page.html").is_symlink()


def test_a_document_from_a_pipe_is_asked_too(file: str, model: str) -> None:
    code = f"from vcc.commands.ask import ask; ask('-', ('w1',), json=True, model={model!r})"
    done = subprocess.run([sys.executable, "-c", code], input=Path(file).read_bytes(), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["document"]["title"] == "standard input"


def test_looking_after_indexes_costs_no_transformers(tmp_path: Path) -> None:
    code = "import sys; from vcc.cli import main; main(['index', '--list']); sys.exit('transformers' in sys.modules)"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("0 indexes"), done.stderr


def test_a_control_character_of_a_question_does_not_reach_the_terminal(
    file: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(lambda: ask(file, ("w1 \x1b[31m",), model=model)) == 2
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err and "has a control character" in err
