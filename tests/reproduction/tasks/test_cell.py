"""Cells end to end on tiny documents, and their scores against counts by hand."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reproduction.tasks.cell import result_file, run_cell
from reproduction.tasks.experiment import Tasks
from reproduction.tasks.packed import LongItem, PackedTask, items_of
from reproduction.tasks.scores import scores
from reproduction.tasks.specs import LONG_TASKS, compression
from tests.reproduction.tasks import tiny_tasks
from vcc.cli import main


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_tasks.packed(tmp_path_factory.mktemp("tasks"))


@pytest.mark.parametrize("task, way", [(name, way) for name, task in LONG_TASKS.items() for way in task.ways])
def test_every_cell_trains_and_scores(task: str, way: str, packed: Path, tmp_path: Path) -> None:
    found = run_cell(packed, tmp_path, tiny_tasks.SMALL, task, way)
    assert json.loads(result_file(tmp_path, task, way).read_text()) == found
    assert found["steps"] >= 1 and found["documents"] >= LONG_TASKS[task].batch and found["seconds"] >= 0.2
    main_score = "token_f1" if LONG_TASKS[task].kind == "tag" else "accuracy"
    assert 0 <= found["metrics"][main_score] <= 100 and f"{main_score}_low" in found["metrics"]


def test_packed_documents_are_their_texts_and_tags(packed: Path) -> None:
    from vcc.hosts.load import load_tokenizer

    tokenizer = load_tokenizer(packed / "start", local=True)
    data = PackedTask.load(packed, "tags")
    for item in items_of(data, 10_000, False, test=True):
        i = int(item.group.split("_")[1][0])
        assert tokenizer.decode(item.document) == tokenizer.decode(
            tokenizer(tiny_tasks.clauses(i), add_special_tokens=False)["input_ids"]
        )
        insurance = 1 + data.labels.index("Insurance")
        tagged = item.document[item.tags == insurance]
        assert set(item.tags) == {0, insurance} and "w1 w2" in tokenizer.decode(tagged)
        assert len(item.asked) == len(data.labels)  # the names of all tags


def test_books_become_pieces_of_one_length(packed: Path) -> None:
    data = PackedTask.load(packed, "books")
    pieces = [one for test in (False, True) for one in items_of(data, 64, True, test)]
    assert {one.length for one in pieces} == {62} and len(pieces) == 10 * 4  # 300 words and two more
    whole = [one for test in (False, True) for one in items_of(data, 1000, False, test)]
    assert len(whole) == 10 and all(one.length > 256 for one in whole)


def test_scores_of_classes_and_tags_are_counted() -> None:
    def item(label: int, tags: list[int] | None = None) -> LongItem:
        document = np.zeros(len(tags or [0]), dtype=np.uint16)
        return LongItem(str(label), document, (), label, None if tags is None else np.array(tags))

    found = scores([item(0), item(0), item(1)], [np.array([0]), np.array([1]), np.array([1])], ("a", "b", "c"), "class")
    assert found["accuracy"] == pytest.approx(200 / 3) and found["macro_f1"] == pytest.approx(200 / 3)  # c is nowhere
    tagged = [item(0, [0, 1, 1, 2]), item(1, [0, 0, 2, 2])]
    found = scores(tagged, [np.array([0, 1, 0, 2]), np.array([1, 0, 2, 0])], ("x", "y"), "tag")
    x, y = 2 * 1 / (2 + 2), 2 * 2 / (2 + 3)  # hits, predictions, references
    assert found["macro_f1"] == pytest.approx(100 * (x + y) / 2) and found["token_f1"] == pytest.approx(600 / 9)


def test_compression_is_the_papers_by_length() -> None:
    found = {n: (compression(n).scales[0], *compression(n).budget) for n in (4096, 16_384, 32_768, 65_536)}
    assert found == {4096: (16, 90), 16_384: (16, 90), 32_768: (32, 55), 65_536: (64, 30)}
    assert compression(4096).dense_below == 0


@pytest.mark.slow
def test_the_command_packs_runs_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.reproduction import tiny

    data, model = tiny_tasks.data(tmp_path / "data"), tiny.model(tmp_path / "model")
    out = ["--out", str(tmp_path / "out"), "--tasks", "pairs"]
    assert main(["reproduce", "tasks", *out, "--data", str(data), "--model", str(model), "--pack", "true"]) == 0
    assert not (tmp_path / "out" / "packed" / "books.npz.xz").exists()  # not asked for
    run = [*out, "--data", str(tmp_path / "out" / "packed"), "--device", "cpu", "--cell-seconds", "0.1"]
    run += [
        "--longest",
        "96",
        "--compile",
        "false",
        "--loaders",
        "1",
        "--models",
        "truncated,vcc",
        "--run",
        "--minutes",
        "5",
    ]
    assert main(["reproduce", "tasks", *run]) == 0
    shown = (tmp_path / "out" / "reports" / "tasks.md").read_text()
    assert "| pairs | truncated | accuracy" in shown and "| pairs | vcc | accuracy" in shown and "GPU s" in shown
    capsys.readouterr()
    assert main(["reproduce", "tasks", *run]) == 0 and "2 steps, 2 done" in capsys.readouterr().out


def test_cells_can_be_chosen(tmp_path: Path) -> None:
    from reproduction.experiment import Workspace

    at = Workspace("small", tmp_path, None, "", "", "", replace(tiny_tasks.SMALL, tasks=("tags",), models=("vcc",)))
    assert Tasks().cells(at) == [("tags", "vcc")]
    every = Tasks().cells(replace(at, small=tiny_tasks.SMALL))
    assert len(every) == sum(len(task.ways) for task in LONG_TASKS.values())
