"""A shard that was damaged, cut, removed or put there by others is named and done again: never another table."""

import random
import shutil
from pathlib import Path

import pytest

from tests.documents import small_model
from tests.fleet.collections import contracts
from vcc.documents.review_table import Question
from vcc.fleet import run as running
from vcc.fleet.job import Done, Job
from vcc.fleet.run import run, work_folder
from vcc.fleet.shards import SHARDS, Shards, missing
from vcc.fleet.sources import Item, find_items


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job("ask", small_model.saved(tmp_path_factory.mktemp("model")), (Question("w1 w2 w3 ?"),))


def done(item: Item, number: int) -> Done:
    about = {
        "document": item.name,
        "id": "x" * 64,
        "title": f"T{number}",
        "tokens": number,
        "kind": None,
        "error": None,
    }
    return Done(item, [about | {"rank": 1, "text": f"answer {number}", "score": number / 100}])


@pytest.mark.parametrize("flips", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_one_flipped_bit_never_changes_the_table(
    job: Job, flips: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    items = find_items([str(contracts(tmp_path / "in", 6))]).items
    rng = random.Random(0)
    with Shards(tmp_path / "out.work").opened(job) as shards:
        for some in (items[:2], items[2:4], items[4:]):
            shards.commit([done(item, items.index(item)) for item in some])
        rows = shards.rows(items)
        for flip in range(flips):
            path = rng.choice(shards.paths())
            data = bytearray(path.read_bytes())
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            caplog.clear()
            lost = missing(items, shards.kept(), retry=False)
            assert len(lost) == 2 and path.name in caplog.text, flip
            shards.commit([done(item, items.index(item)) for item in lost])
            assert shards.rows(items) == rows, flip
        assert not missing(items, shards.kept(), retry=False) and len(shards.paths()) == 3


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def foreign(path: Path) -> None:
    shutil.copy(path, path.with_name("x.parquet"))
    path.write_bytes(b"")


def of_another(path: Path) -> None:
    """A good shard with the name of another one."""
    other = next(one for one in path.parent.iterdir() if one != path)
    shutil.copy(other, path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [cut, foreign, of_another, a_folder, Path.unlink])
def test_damage_is_named_and_done_again(
    damage: object, job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "CHUNK_ITEMS", 2)
    items, out = find_items([str(contracts(tmp_path / "in", 4, 1))]).items, tmp_path / "out.parquet"
    run(job, items, out)
    first, path = out.read_bytes(), sorted((work_folder(out) / SHARDS).iterdir())[0]
    assert callable(damage)
    damage(path)
    tally = run(job, items, out)
    assert 1 <= tally.documents <= 2 and out.read_bytes() == first
    assert path.name in caplog.text and ("x.parquet" in caplog.text) == (damage is foreign)
    caplog.clear()
    assert run(job, items, out).documents == 0 and out.read_bytes() == first
    assert path.name not in caplog.text or damage is a_folder
