"""A folder is indexed, found in and asked; files that come, change and go are followed; kills leave what was there."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.documents import small_model
from tests.fleet.collections import contracts, model_in_this_process, texts
from vcc.cli import main
from vcc.commands.shared.collection import index_job, store_here
from vcc.commands.shared.documents import DEFAULT_READ_LIMITS
from vcc.documents.finding import WEIGHTS, Catalogue, Sketch, question_vectors
from vcc.documents.formats.read import read_text
from vcc.documents.shipped import load_asker
from vcc.errors import UsageError
from vcc.fleet.collection import Collection, collection_folder

QUESTION = "w1 w2 ?"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return model_in_this_process(tmp_path, monkeypatch)


def index(folder: Path, model: str) -> Collection:
    assert main(["index", str(folder), "--model", model]) == 0
    return kept(folder, model)


def kept(folder: Path, model: str) -> Collection:
    """What the last run has left."""
    job = index_job(model, DEFAULT_READ_LIMITS, store_here())
    return Collection(collection_folder(store_here(), str(folder), job))


def expected(folder: Path, model: str) -> dict[str, float]:
    """Of a catalogue that is made anew of what the folder holds."""
    asker, files = load_asker(model), sorted(folder.glob("*.txt"))
    catalogue = Catalogue.of([Sketch.of(asker.index(read_text(file)), asker) for file in files])
    [vector], ids = question_vectors(asker, [QUESTION]), asker.qa.ids_of(QUESTION)
    return {files[match.number].name: match.score for match in catalogue.find(vector, ids, 99, WEIGHTS)}


def found(collection: Collection, model: str) -> dict[str, float]:
    return {hit.item.name: hit.score for hit in collection.find(load_asker(model), QUESTION, 99)}


def test_a_folder_is_indexed_found_in_and_asked(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = contracts(tmp_path / "in", 6, 1)
    collection = index(folder, model)
    printed = capsys.readouterr().err
    assert "7 documents" in printed and "1 errors (1 document)" in printed and "catalogue of 6 documents" in printed
    hits = collection.find(load_asker(model), QUESTION, 6)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert main(["ask", str(folder), QUESTION, "--model", model, "--documents", "2", "--top", "9"]) == 0
    shown = capsys.readouterr().out
    assert "asked the best 2 of 6 documents" in shown and hits[0].item.name in shown.replace("\n", "")
    assert main(["find", str(folder), QUESTION, "--model", model, "--top", "4", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["documents"]
    assert [one["document"] for one in listed] == [hit.item.name for hit in hits[:4]]
    index(folder, model)  # nothing is left to do
    assert "0 documents in" in capsys.readouterr().err


def test_a_long_document_of_a_folder_is_read_once(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vcc.documents.index.LONG", 500)  # characters; its index is then on disk
    folder = texts(tmp_path / "in", 2)
    (folder / "long.txt").write_text(small_model.text(1500))
    index(folder, model)
    assert list((tmp_path / "cache").rglob("shape.json"))
    monkeypatch.setattr("vcc.qa.long_tree.read_once", lambda *_: pytest.fail("the document was read again"))
    for question in (QUESTION, "w5 ?"):
        capsys.readouterr()
        assert main(["ask", str(folder), question, "--model", model, "--documents", "3"]) == 0
        assert "asked the best 3 of 3 documents" in capsys.readouterr().out


def test_find_reads_a_folder_that_was_not_indexed(model: str, tmp_path: Path, capsys: Any) -> None:
    folder = texts(tmp_path / "in", 3)
    assert main(["find", str(folder), QUESTION, "--model", model, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["documents"]
    assert {one["document"]: one["match"] for one in listed} == pytest.approx(expected(folder, model), abs=0.01)
    assert main(["find", str(folder), QUESTION, "--top", "0"]) == 2
    assert main(["find", str(folder), " ", "--model", model]) == 2
    assert main(["find", str(folder / "0.txt"), QUESTION, "--model", model]) == 2


def test_find_and_ask_follow_files_that_come_and_go(model: str, tmp_path: Path, capsys: Any) -> None:
    """Without `vcc index`: both read what is new, and forget what is gone."""
    folder = texts(tmp_path / "in", 3)

    def listed() -> set[str]:
        assert main(["find", str(folder), QUESTION, "--model", model, "--json"]) == 0
        return {one["document"] for one in json.loads(capsys.readouterr().out)["documents"]}

    assert listed() == {"0.txt", "1.txt", "2.txt"}
    (folder / "0.txt").unlink()
    (folder / "new.txt").write_text(small_model.text(50, 78))
    assert listed() == {"1.txt", "2.txt", "new.txt"}
    (folder / "newer.txt").write_text(small_model.text(70, 79))
    assert main(["ask", str(folder), QUESTION, "--model", model, "--json", "--threshold", "0"]) == 0
    documents = json.loads(capsys.readouterr().out)["replies"][0]["documents"]
    assert {one["document"] for one in documents} == {"1.txt", "2.txt", "new.txt", "newer.txt"}
    assert all(one["answers"] for one in documents), "with threshold 0 every document answers"


def test_questions_typed_at_a_prompt_go_to_the_best_documents(
    model: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, typed = texts(tmp_path / "in", 3), iter([QUESTION, "w5 ?", ""])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    assert main(["ask", str(folder), "--model", model, "--documents", "2"]) == 0
    shown = capsys.readouterr().out
    assert "3 documents. An empty line quits." in shown and shown.count("asked the best 2 of 3 documents") == 2


def test_a_folder_in_which_nothing_changed_is_not_gone_through_again(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = texts(tmp_path / "in", 2)
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 and no more")
    [failed] = index(folder, model).failed
    assert failed.startswith("broken.pdf: ")
    monkeypatch.setattr("vcc.fleet.collection.run", lambda *_: pytest.fail("the documents were gone through"))
    assert main(["find", str(folder), QUESTION, "--model", model]) == 0


def test_files_that_come_change_and_go_are_followed(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = texts(tmp_path / "in", 4)
    index(folder, model)
    (folder / "0.txt").unlink()
    (folder / "1.txt").write_text(small_model.text(333, 77))
    (folder / "new.txt").write_text(small_model.text(50, 78))
    made: list[Path] = []
    save = Sketch.save
    monkeypatch.setattr(Sketch, "save", lambda self, path: (made.append(path), save(self, path)))
    collection = index(folder, model)
    assert len(made) == 2, "only what is new was sketched"
    assert found(collection, model) == pytest.approx(expected(folder, model), abs=0.01)
    before = collection.about["catalogue"]
    os.utime(folder / "2.txt", (1, 1))  # another time, the same content
    assert index(folder, model).about["catalogue"] == before and len(made) == 2
    assert len(list(collection.folder.glob("catalogue-*"))) == 1, "the old catalogue is gone"


def test_sketches_that_were_removed_are_made_again(model: str, tmp_path: Path) -> None:
    folder = texts(tmp_path / "in", 2)
    index(folder, model)
    for sketch in (tmp_path / "cache" / "vcc" / "sketches").iterdir():
        sketch.unlink()
    (folder / "new.txt").write_text(small_model.text(50, 78))
    assert found(index(folder, model), model) == pytest.approx(expected(folder, model), abs=0.01)


def test_a_damaged_catalogue_says_so_and_is_made_again(model: str, tmp_path: Path) -> None:
    folder = texts(tmp_path / "in", 2)
    collection = index(folder, model)
    (collection.folder / collection.about["catalogue"] / "coarse.npy").write_bytes(b"")
    with pytest.raises(UsageError, match="run vcc index again"):
        Collection(collection.folder).find(load_asker(model), QUESTION, 1)
    assert found(index(folder, model), model) == pytest.approx(expected(folder, model), abs=0.01)


KILLED = """
import os, signal, sys
import vcc.{module} as module
real = module.{name}
calls = 0
def deadly(*given, **named):
    global calls
    calls += 1
    if calls == {at}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given, **named)
module.{name} = deadly
import vcc.commands.shared.collection as shared
shared.default_workers = lambda: 0
from vcc.cli import main
sys.exit(main({arguments!r}))
"""


@pytest.mark.parametrize(
    ("module", "name", "at"),
    [
        pytest.param("documents.finding", "write_whole", 2, marks=pytest.mark.slow),  # between two sketches
        ("documents.finding", "force", 3),  # between two arrays of the catalogue
        pytest.param("fleet.collection", "write_whole", 1, marks=pytest.mark.slow),  # it is whole, but nothing names it
        pytest.param("fleet.collection", "remove_others", 1, marks=pytest.mark.slow),  # two catalogues are there
    ],
)
def test_a_kill_leaves_the_catalogue_of_before_or_the_new_one(
    module: str, name: str, at: int, model: str, tmp_path: Path
) -> None:
    folder = texts(tmp_path / "in", 2)
    index(folder, model)
    before = expected(folder, model)
    for seed in (7, 8):
        (folder / f"{seed}.txt").write_text(small_model.text(90, seed))
    after = expected(folder, model)
    script = KILLED.format(module=module, name=name, at=at, arguments=["index", str(folder), "--model", model])
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    scores = found(kept(folder, model), model)
    wanted = after if name == "remove_others" else before
    assert scores == pytest.approx(wanted, abs=0.01)
    again = index(folder, model)
    assert found(again, model) == pytest.approx(after, abs=0.01)
    assert len(list(again.folder.glob("catalogue-*"))) == 1


@pytest.mark.skipif(os.name != "posix", reason="such names cannot be written")
def test_a_terminal_does_not_obey_the_names_of_files(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = texts(tmp_path / "texts", 1)
    (folder / "0.txt").rename(folder / "red\x1b[31m.txt")
    for command in ("find", "ask"):
        assert main([command, str(folder), QUESTION, "--model", model]) == 0
        told = capsys.readouterr()
        assert "\x1b" not in told.out + told.err and "red\\x1b" in told.out + told.err, command
