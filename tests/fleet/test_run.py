"""Many documents: nothing is lost, nothing is done twice, and who does it does not show."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.documents import small_model
from tests.fleet.collections import contracts
from vcc.documents.document import Document
from vcc.documents.formats.gate import Limits
from vcc.documents.formats.read import read_text
from vcc.documents.review_table import Question
from vcc.errors import DataError, DocumentError, Failure, UsageError
from vcc.fleet import run as running
from vcc.fleet.job import Job
from vcc.fleet.run import Executor, run, work_folder
from vcc.fleet.shards import Shards
from vcc.fleet.sources import find_items
from vcc.fleet.table import SCHEMA

QUESTIONS = (Question("w1 w2 w3 ?", "First"), Question("w40 w41 ?"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model.saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return contracts(tmp_path_factory.mktemp("contracts"), 11, 4)


@pytest.fixture
def job(model: str) -> Job:
    return Job("ask", model, QUESTIONS, top=2)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CHUNK_ITEMS", 3)


def rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


def test_rows_are_what_each_document_answers(folder: Path, job: Job, tmp_path: Path) -> None:
    tally = run(job, find_items([str(folder)]).items, tmp_path / "out.parquet")
    assert (tally.documents, tally.skipped, dict(tally.errors)) == (15, 0, {"document": 4})
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.schema == SCHEMA
    found = table.to_pylist()
    assert [row["document"] for row in found] == sorted(row["document"] for row in found)
    for name in ("b/contract 00001.txt", "a/contract 00000.pdf"):
        own = [row for row in found if row["document"] == name]
        replies = Document(read_text(folder / name), job.model).ask_all([q.question for q in QUESTIONS], 2)
        expected = [
            (number, rank, answer.text, answer.start, answer.end, answer.score)
            for number, reply in enumerate(replies)
            for rank, answer in enumerate(reply.answers, 1)
        ]
        fields = ("question_number", "rank", "text", "start", "end", "score")
        assert [tuple(row[field] for field in fields) for row in own if row["rank"]] == expected != []
    errors = {row["document"]: row["error"] for row in found if row["kind"]}
    assert errors["00001 empty.txt"] == "is empty" and errors["00003 misnamed.docx"].startswith("is not a DOCX")


@pytest.mark.slow
def test_who_works_and_how_much_at_a_time_does_not_show(
    folder: Path, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = find_items([str(folder)]).items
    run(job, items, tmp_path / "one.parquet")
    run(job, items, tmp_path / "two.parquet", Executor(2))
    monkeypatch.setattr(running, "CHUNK_ITEMS", 5)
    run(job, items[::-1], tmp_path / "large.csv")
    run(job, items, tmp_path / "one.csv")
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "large.csv").read_bytes()


def test_a_rerun_does_what_is_new_or_changed_and_retries_if_asked(job: Job, tmp_path: Path) -> None:
    folder, out = contracts(tmp_path / "in", 4, 2), tmp_path / "out.parquet"
    run(job, find_items([str(folder)]).items, out)
    first = out.read_bytes()
    again = run(job, find_items([str(folder)]).items, out)
    assert (again.documents, again.skipped) == (0, 6) and out.read_bytes() == first
    contracts(folder, 5, 2)  # one more; the others have new times and old content
    (folder / "b/contract 00001.txt").write_text("w1 w2 w3 another text. " * 9)
    assert run(job, find_items([str(folder)]).items, out).skipped < 6
    fresh = tmp_path / "fresh.parquet"
    run(job, find_items([str(folder)]).items, fresh)
    assert fresh.read_bytes() == out.read_bytes() != first
    retried = run(job, find_items([str(folder)]).items, out, retry=True)
    assert (retried.documents, dict(retried.errors)) == (2, {"document": 2})
    (folder / "a/contract 00002.txt").unlink()
    run(job, find_items([str(folder)]).items, out)
    assert "a/contract 00002.txt" not in {row["document"] for row in rows(out)}


def test_two_jobs_are_not_mixed_and_two_runs_not_at_once(folder: Path, job: Job, tmp_path: Path) -> None:
    items, out = find_items([str(folder)]).items[:1], tmp_path / "out.parquet"
    run(job, items, out)
    with pytest.raises(UsageError, match=r"another job \(other top\)"):
        run(replace(job, top=3), items, out)
    with pytest.raises(UsageError, match=r"other questions"):
        run(replace(job, questions=QUESTIONS[:1]), items, out)
    run(replace(job, seconds=5.0), items, out)  # more time for reading is the same job
    with Shards(work_folder(out)).opened(job), pytest.raises(Failure, match="in use by another run"):
        run(job, items, out)


def test_an_interrupted_run_goes_on(folder: Path, job: Job, tmp_path: Path) -> None:
    items, out, whole = find_items([str(folder)]).items, tmp_path / "out.parquet", tmp_path / "whole.parquet"
    run(job, items, whole)

    def stop(tally: running.Tally) -> None:
        if tally.documents:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(job, items, out, report=stop)
    (work_folder(out) / "shards" / ".writing-left").write_bytes(b"half")
    done = run(job, items, out)
    assert done.skipped == 3 and out.read_bytes() == whole.read_bytes()
    assert not (work_folder(out) / "shards" / ".writing-left").exists()


def test_sources(tmp_path: Path) -> None:
    folder = contracts(tmp_path / "in", 4)
    (folder / "b" / "notes.xyz").write_text("no")
    (folder / ".hidden.txt").write_text("no")
    listing = find_items([str(folder)])
    names = [item.name for item in listing.items]
    assert names == ["a/contract 00000.pdf", "a/contract 00002.txt", "b/contract 00001.txt", "b/contract 00003.txt"]
    assert listing.skipped == ("b/notes.xyz: not a document format",)
    assert [item.name for item in find_items([f"{folder}/*/*1.txt"]).items] == ["b/contract 00001.txt"]
    one = folder / "b" / "contract 00001.txt"
    (tmp_path / "list").write_text(f"# mine\n{one}\n\n")
    (item,) = find_items([f"@{tmp_path / 'list'}"]).items
    assert (item.name, item.fetch()) == (str(one), one.read_bytes())
    with pytest.raises(DataError, match="no such file"):
        find_items([str(tmp_path / "none")])
    with pytest.raises(DataError, match="no document of a known kind"):
        find_items([str(folder / "b" / "*.xyz")])


def test_what_is_no_file_or_leaves_the_folder_is_not_read(job: Job, tmp_path: Path) -> None:
    folder = contracts(tmp_path / "in", 2)
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "out.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "loop.txt").symlink_to("loop.txt")
    (folder / "up").symlink_to("..")
    (folder / "zero.txt").symlink_to("/dev/zero")
    (folder / "inside.txt").symlink_to(folder / "b" / "contract 00001.txt")
    os.mkfifo(folder / "pipe.txt")
    (folder / os.fsdecode(b"\xff\x1b.txt")).write_text(small_model.text(30))
    listing = find_items([str(folder)])
    names = {"a/contract 00000.pdf", "b/contract 00001.txt", "inside.txt", "pipe.txt", "\\udcff\x1b.txt"}
    assert {item.name for item in listing.items} == names
    reasons = dict(one.split(": ") for one in listing.skipped)
    assert "leaves the folder" in reasons["out.txt"] and "leaves the folder" in reasons["zero.txt"]
    assert "broken link" in reasons["loop.txt"] and "not followed" in reasons["up"]
    assert {item.name for item in find_items([f"{folder}/*.txt"]).items} == {n for n in names if "/" not in n}
    tally = run(job, listing.items, tmp_path / "out.parquet")  # a pipe that is opened waits for ever
    assert tally.errors == {"fetch": 1}
    (wrong,) = [row for row in rows(tmp_path / "out.parquet") if row["kind"]]
    assert wrong["document"] == "pipe.txt" and "is a named pipe" in wrong["error"]


def test_a_file_above_the_limit_is_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * 1001)
    fsspec.filesystem("memory").pipe("/large/a.txt", b"x" * 1001)
    for source in (str(tmp_path), "memory://large"):
        (item,) = find_items([source]).items
        assert len(item.fetch(Limits(file_bytes=1001))) == 1001
        with pytest.raises(DocumentError, match="limit of 1,000"):
            item.fetch(Limits(file_bytes=1000))


def test_odd_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"text": "w1 \ud800 w2"}) + "\n")
    (item,) = find_items([str(path)]).items
    assert item.fetch() == b"w1 ? w2"
    path.write_text("[" * 100_000 + "\n")
    with pytest.raises(DataError, match="line 1 must be a JSON object"):
        find_items([str(path)])


def test_tables_are_sources_and_rows_that_stay_are_not_done_again(job: Job, tmp_path: Path) -> None:
    texts = [small_model.text(40, seed) for seed in range(5)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
    pq.write_table(pa.table({"body": texts}), tmp_path / "t.parquet", row_group_size=2)
    for name in ("t.jsonl", "t.parquet"):
        items = find_items([str(tmp_path / name)], "body").items
        assert [item.fetch().decode() for item in items] == texts
        with pytest.raises(DataError, match="'text'"):
            find_items([str(tmp_path / name)])
    run(job, find_items([str(tmp_path / "t.jsonl")], "body").items, tmp_path / "out.parquet")
    with (tmp_path / "t.jsonl").open("a") as file:
        file.write(json.dumps({"body": "w1 w2"}) + "\n")
    grown = run(job, find_items([str(tmp_path / "t.jsonl")], "body").items, tmp_path / "out.parquet")
    assert (grown.documents, grown.skipped) == (1, 5)


def test_other_file_systems(job: Job, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/fleet/in/one.txt", small_model.text(50).encode())
    memory.pipe("/fleet/in/deep/two.txt", small_model.text(60, 1).encode())
    items = find_items(["memory://fleet/in"]).items
    assert [item.name for item in items] == ["deep/two.txt", "one.txt"]
    tally = run(job, items, tmp_path / "out.parquet")
    assert not tally.errors and {row["document"] for row in rows(tmp_path / "out.parquet")} == {
        "deep/two.txt",
        "one.txt",
    }
    memory.rm("/fleet/in/one.txt")
    tally = run(replace(job, top=1), items[1:], tmp_path / "gone.parquet")
    assert dict(tally.errors) == {"fetch": 1}
