"""Every way to ask a document, with both kinds of index: it is read once, and again if its index is removed."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vcc
import vcc.documents.index as kinds
from tests.documents import small_model
from vcc.cli import main
from vcc.documents import isolated
from vcc.documents.document import Document
from vcc.documents.formats.read import read_text
from vcc.documents.review_table import Question
from vcc.documents.store import Store, default_store
from vcc.errors import DocumentError, UsageError
from vcc.fleet import job as jobs
from vcc.fleet.job import Job
from vcc.fleet.run import run
from vcc.fleet.sources import find_items
from vcc.fleet.table import Row
from vcc.qa.model import QaModel

QUESTIONS = ["w1 w2 ?", "w3 w4 w5 ?"]
FORMATS = {"memory": "index.safetensors", "disk": "means"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model.saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=list(FORMATS))
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kind of index that all texts of a test have."""
    monkeypatch.setattr(kinds, "LONG", 10**9 if request.param == "memory" else 100)
    return request.param


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each text that the model reads, in memory or on disk."""
    counts: list[int] = []
    in_memory, on_disk = kinds.read_pieces, kinds.read_long

    def read_pieces(qa: QaModel, ids: Any, *rest: Any) -> Any:
        counts.append(len(ids))
        return in_memory(qa, ids, *rest)

    def read_long(qa: QaModel, ids: Any, *rest: Any) -> Any:
        counts.append(len(ids))
        return on_disk(qa, ids, *rest)

    monkeypatch.setattr(kinds, "read_pieces", read_pieces)
    monkeypatch.setattr(kinds, "read_long", read_long)
    return counts


@pytest.fixture
def file(place: Path) -> str:
    (place / "words.txt").write_text(small_model.text(300))
    return "words.txt"


def kept(store: Store) -> list[bool]:
    """For each index of a store whether it has the files of the kind in memory."""
    return [(entry.path / FORMATS["memory"]).exists() for entry in store.entries()]


def test_the_command_reads_once(kind: str, file: str, model: str, reads: list[int], capsys: Any) -> None:
    found = []
    for _ in range(2):
        assert main(["ask", file, *QUESTIONS, "--model", model, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["replies"])
    assert found[0] == found[1] and found[0][0]["answers"] and len(reads) == 1
    assert kept(default_store()) == [kind == "memory"]


def test_the_prompt_uses_the_index_that_is_there(
    kind: str, file: str, model: str, reads: list[int], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["ask", file, QUESTIONS[0], "--model", model]) == 0
    typed = iter([*QUESTIONS, ""])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    assert main(["ask", file, "--model", model]) == 0
    assert next(typed, "all typed") == "all typed" and len(reads) == 1
    assert kept(default_store()) == [kind == "memory"]


def test_reviewing_and_seeing_use_it_too(kind: str, file: str, model: str, reads: list[int], capsys: Any) -> None:
    assert main(["index", file, "--model", model]) == 0
    assert main(["review", file, "--model", model, "--json"]) == 0
    assert main(["see", file, QUESTIONS[0], "--model", model]) == (0 if kind == "memory" else 2)
    assert len(reads) == 1 and ("too many to show" in capsys.readouterr().err) == (kind == "disk")


def test_what_cannot_be_shown_is_not_read(file: str, model: str, reads: list[int], monkeypatch: Any) -> None:
    monkeypatch.setattr(kinds, "LONG", 100)
    assert main(["see", file, QUESTIONS[0], "--model", model]) == 2
    assert reads == []


@pytest.mark.parametrize("with_store", [True, False])
def test_python_may_ask_index_and_see_in_any_order(
    kind: str, with_store: bool, file: str, model: str, reads: list[int], place: Path
) -> None:
    document = Document(vcc.read(file).content, model, Store(place / "store") if with_store else None)
    first = document.ask(QUESTIONS[0])
    assert document.index().tokens == reads[0] >= 300
    document.read()
    assert document.ask(QUESTIONS[0]) == first and first
    if kind == "memory":
        assert document.see(QUESTIONS[0])[0].answers == first
    else:
        with pytest.raises(UsageError, match="too many to show"):
            document.see(QUESTIONS[0])
    assert len(reads) == 1


def test_an_index_that_is_removed_while_its_document_is_open_is_made_again(
    kind: str, file: str, model: str, reads: list[int], place: Path
) -> None:
    store = Store(place / "store")
    document = Document(read_text(file), model, store)
    first = document.ask_all(QUESTIONS)
    assert store.clear()[0] == 1  # as vcc index --clear does in another process
    assert document.ask_all(QUESTIONS) == first
    assert kept(store) == [kind == "memory"]
    assert len(reads) == (1 if kind == "memory" else 2), "one in memory need not be read again"
    Document(read_text(file), model, store).ask_all(QUESTIONS)
    assert len(reads) == (1 if kind == "memory" else 2)


@pytest.fixture
def engine(kind: str, model: str, place: Path) -> Iterator[Any]:
    from vcc.serve.engine import Engine
    from vcc.serve.library import Library
    from vcc.serve.metrics import Metrics
    from vcc.serve.settings import ServiceSettings

    settings = ServiceSettings(place / "service", model=model, readers=1)
    engine = Engine(settings, Library(settings.folder, settings.kept_bytes, settings.kept_hours), Metrics())
    yield engine
    engine.close()


def test_the_service_reads_an_upload_once_and_again_when_it_made_room(
    kind: str, engine: Any, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = engine.library
    entry, other = (library.add(small_model.text(300, seed).encode(), "a.txt") for seed in (0, 7))
    for one in (entry, other):
        engine._read(one.id)
        assert library.get(one.id).state == "ready"

    def asked(id: str, question: str) -> Any:
        return engine.submit(id, [question])[0].result(60)

    first = asked(entry.id, QUESTIONS[0])
    assert first.answers and len(reads) == 2, "the first question reads nothing"
    assert kept(library.store) == [kind == "memory"] * 2
    engine.replies.clear()
    Store(library.store.folder, most_bytes=1).tidy(Path())  # all indexes make room for one that is not there
    assert library.store.entries() == []
    urgent: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(engine.turns, "urgent", counted(engine.turns.urgent, lambda: urgent.append(len(reads))))
        assert asked(entry.id, QUESTIONS[0]) == first
    assert urgent == [2 if kind == "memory" else 3], "it is read again before the turn of the question"
    assert len(kept(library.store)) == 1
    Store(library.store.folder, most_bytes=1).tidy(Path())
    assert engine.review(entry.id, [Question(QUESTIONS[0])], lambda done, total: None).cells[0]


def counted(function: Callable[[], Any], note: Callable[[], None]) -> Callable[[], Any]:
    def noted() -> Any:
        note()
        return function()

    return noted


def test_a_question_to_a_document_without_index_does_not_hold_up_the_others(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, other = (engine.library.add(small_model.text(300, seed).encode(), "a.txt") for seed in (0, 7))
    for one in (entry, other):
        engine._read(one.id)
    engine.open.clear()
    index = engine.library.store.place(engine.library.get(entry.id).sha256, engine.model_hash)
    index.rename(index.with_name("away"))
    released, read = threading.Event(), Document.read

    def slow(self: Document, *given: Any, **named: Any) -> None:
        assert released.wait(60)
        read(self, *given, **named)

    monkeypatch.setattr(engine.turns, "patient", lambda *given: _nothing())
    monkeypatch.setattr(Document, "read", slow)
    late = engine.submit(entry.id, [QUESTIONS[0]])[0]
    assert engine.submit(other.id, [QUESTIONS[0]])[0].result(60) and not late.done()
    released.set()
    assert late.result(60)


class _nothing:
    """A turn that is never taken: reading waits for the test alone."""

    def __enter__(self) -> Callable[[int, int], None]:
        return lambda done, total: None

    def __exit__(self, *_: object) -> None:
        pass


def test_deleting_a_document_opens_no_other(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    library = engine.library
    same = [library.add(small_model.text(300).encode(), "a.txt") for _ in range(2)]
    for one in same:
        engine._read(one.id)
    monkeypatch.setattr(library, "text", lambda id: pytest.fail("a text was read"))
    engine.forget(same[0].id)
    assert len(library.store.entries()) == 1, "another document has the same text"
    engine.forget(same[1].id)
    assert library.store.entries() == []


def test_a_collection_reads_each_document_once(
    kind: str, model: str, place: Path, reads: list[int], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcc.commands.shared.collection.default_workers", lambda: 0)  # in this process
    (place / "in").mkdir()
    for seed in range(3):
        (place / "in" / f"{seed}.txt").write_text(small_model.text(200, seed))
    assert main(["index", "in", "--model", model]) == 0
    capsys.readouterr()
    for question in QUESTIONS:
        assert main(["ask", "in", question, "--model", model, "--json"]) == 0
        [asked] = json.loads(capsys.readouterr().out)["replies"]
        assert len(asked["documents"]) == 3 and all(one["answers"] for one in asked["documents"])
    assert len(reads) == 3 and kept(default_store()) == [kind == "memory"] * 3
    expected = {
        f"{seed}.txt": Document(read_text(place / "in" / f"{seed}.txt"), model).ask(QUESTIONS[-1]) for seed in range(3)
    }
    for one in asked["documents"]:
        assert [answer["start"] for answer in one["answers"]] == [a.start for a in expected[one["document"]]]


def test_names_in_a_folder_do_not_command_the_terminal(
    model: str, place: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcc.commands.shared.collection.default_workers", lambda: 0)  # in this process
    box, name = place / "in\x1b[2J\nvcc: forged", "a\x1b[2J\nvcc: forged"
    box.mkdir()
    (box / f"{name}.txt").write_text(small_model.text(60))
    (box / f"{name}.pdf").write_bytes(b"%PDF-1.7 broken")
    (place / "questions.csv").write_text("question\nw1 w2?\n")
    for line in (
        ["find", str(box), "w1?"],
        ["ask", str(box), "w1?"],
        ["index", str(box)],
        ["review", str(box), "--questions", "questions.csv"],
        ["ask", str(box / f"{name}.pdf"), "w1?"],
    ):
        main([*line, "--model", model])
        shown = "".join(capsys.readouterr())
        assert "forged" in shown and "\x1b[2J" not in shown and "\nvcc: forged" not in shown, line


def answers(rows: list[Row], name: str) -> list[tuple[int, int, float]]:
    return [(row["start"], row["end"], row["score"]) for row in rows if row["document"] == name and row["rank"]]


def test_a_fleet_answers_as_the_document_does(kind: str, model: str, place: Path, reads: list[int]) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    (place / "in").mkdir()
    for seed in range(2):
        (place / "in" / f"{seed}.txt").write_text(small_model.text(200, seed))
    job = Job("ask", model, tuple(map(Question, QUESTIONS)), top=2)
    run(job, find_items(["in"]).items, place / "out.parquet")
    assert len(reads) == 2
    rows = pq.read_table(place / "out.parquet").to_pylist()
    for seed in range(2):
        replies = Document(read_text(place / "in" / f"{seed}.txt"), model).ask_all(QUESTIONS, 2)
        found = [(a.start, a.end, a.score) for reply in replies for a in reply.answers]
        assert answers(rows, f"{seed}.txt") == found != []


def test_a_folder_is_reviewed_with_the_indexes_that_are_there(
    kind: str, model: str, place: Path, reads: list[int], capsys: Any
) -> None:
    (place / "in").mkdir()
    for seed in range(2):
        (place / "in" / f"{seed}.txt").write_text(small_model.text(200, seed))
    (place / "own.yaml").write_text("First: w5?\nSecond: w7?\n")
    for _ in range(2):
        assert main(["review", "in", "--questions", "own.yaml", "--model", model, "--json"]) == 0
        table = json.loads(capsys.readouterr().out)
        assert [row["document"] for row in table["rows"]] == ["0.txt", "1.txt"]
    assert len(reads) == 2 and kept(default_store()) == [kind == "memory"] * 2
    assert {path.name for path in place.iterdir()} == {"cache", "in", "own.yaml"}, "no work folder is left"


def test_a_named_file_that_cannot_be_read_fails_the_review_after_its_table(
    file: str, model: str, place: Path, capsys: Any
) -> None:
    (place / "own.yaml").write_text("First: w5?\n")
    start = ["review", file, "missing.txt", "--questions", "own.yaml", "--model", model]
    assert main([*start, "--json"]) == 1
    shown = capsys.readouterr()
    rows = {row["document"]: row for row in json.loads(shown.out)["rows"]}
    assert rows["missing.txt"]["error"] == "no such file" and rows[file]["cells"][0]
    assert "1 of 2 could not be read: missing.txt" in shown.err
    assert main(start) == 1 and "not read: no such file" in " ".join(capsys.readouterr().out.split())


def test_the_fingerprint_of_a_run_names_what_reads_pdfs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fingerprint(changed: str) -> str:
        version = jobs.version
        with monkeypatch.context() as patch:
            patch.setattr(jobs, "version", lambda name: "99" if name == changed else version(name))
            return Job("ask").fingerprint

    assert fingerprint("pypdfium2") != fingerprint("") == fingerprint("pypdf")


# Files are read in a process of their own, by every door.


@pytest.fixture
def hanging_reader(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Readers that never finish a file with the word poison in it."""
    (place / "planted").mkdir()
    (place / "planted" / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'vcc.documents.isolated' in ' '.join(sys.orig_argv):\n"
        "    from vcc.documents.formats import read\n"
        "    def read_file(file, old=read.read_file):\n"
        "        while b'poison' in file.data: pass\n"
        "        return old(file)\n"
        "    read.read_file = read_file\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(place / "planted"), *filter(None, sys.path)]))
    isolated.end_children()
    yield
    isolated.end_children()


def test_a_file_that_never_ends_is_an_error_after_the_deadline(
    hanging_reader: None, file: str, model: str, place: Path, capsys: Any
) -> None:
    (place / "in").mkdir()
    (place / "in" / "bad.txt").write_text("poison")
    (place / "in" / "good.txt").write_text(small_model.text(50))
    for given in (["ask", "in/bad.txt", "w1?"], ["see", "in/bad.txt", "w1?"], ["index", "in/bad.txt"]):
        assert main([*given, "--model", model, "--seconds", "1"]) == 2
        assert "in/bad.txt: could not be read within 1 seconds: --seconds allows more" in capsys.readouterr().err
    with pytest.raises(DocumentError, match="seconds= in Python"):
        vcc.read("in/bad.txt", seconds=1)
    text = vcc.read("in", seconds=1)
    assert [part.label for part in text.parts] == ["good.txt"]
    assert "skipped bad.txt: could not be read within 1 seconds" in text.notes[0]


def test_a_folder_read_in_another_process_is_the_same_text(place: Path) -> None:
    (place / "in").mkdir()
    (place / "in" / "plain.txt").write_text("Before any heading.\n\n1. TERM\n\nIt ends.\n\n2. LAW\n\nNone.\n")
    (place / "in" / "deed.md").write_text("Preamble.\n\n# Term\n\nIt lasts.")
    (place / "in" / "empty.txt").write_text("")
    text = read_text("in")
    assert vcc.read("in").content == text
    labels = ["deed.md", "deed.md · Term", "plain.txt", "plain.txt · 1. TERM", "plain.txt · 2. LAW"]
    assert [part.label for part in text.parts] == labels and text.notes == ("skipped empty.txt: is empty",)


def test_where_no_process_can_be_started_files_are_read_all_the_same(
    file: str, model: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> isolated.Child:
        raise OSError("no more processes")

    isolated.end_children()
    monkeypatch.setattr(isolated, "Child", refused)
    with pytest.warns(UserWarning, match=r"in this process.*no more processes"):
        assert vcc.read(file).content == read_text(file)
    assert main(["ask", file, "w1?", "--model", model]) == 0
    assert "no more processes" in " ".join(capsys.readouterr().err.split())
    assert main(["review", file, file, ".", "--model", model, "--json"]) == 0
    assert not any(row["error"] for row in json.loads(capsys.readouterr().out)["rows"])


def test_a_review_keeps_the_order_and_takes_any_name(model: str, place: Path, capsys: Any) -> None:
    (place / "own.yaml").write_text("First: w5?\n")
    for folder in ("z [1]", "b"):
        (place / folder).mkdir()
        (place / folder / "same.txt").write_text(small_model.text(60))
    for name in ("odd[1].txt", "a::b.txt"):
        (place / name).write_text(small_model.text(60))
    given = ["odd[1].txt", "z [1]", "b", "a::b.txt"]
    assert main(["review", *given, "--questions", "own.yaml", "--model", model, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["document"] for row in rows] == ["odd[1].txt", "same.txt", "b/same.txt", "a::b.txt"]
    assert not any(row["error"] for row in rows)
    assert main(["review", "x" * 5000, "--model", model]) == 2 and main(["ask", "x" * 5000, "w1?"]) == 2
