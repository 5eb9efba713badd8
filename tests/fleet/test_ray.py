"""On a Ray cluster the table and the catalogue of a folder are the same, bit for bit."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.documents import small_model
from tests.fleet.collections import contracts
from vcc.documents.review_table import Question
from vcc.documents.store import Store
from vcc.fleet import run as running
from vcc.fleet.collection import collect
from vcc.fleet.job import Job
from vcc.fleet.run import Executor, run
from vcc.fleet.sources import find_items

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow  # make test-ray


@pytest.fixture(autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_a_cluster_gives_the_table_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CHUNK_ITEMS", 3)
    items = find_items([str(contracts(tmp_path / "in", 8, 2))]).items
    job = Job("ask", small_model.saved(tmp_path / "model"), (Question("w1 w2 ?"),), top=2)
    run(job, items, tmp_path / "one.parquet")
    tally = run(job, items, tmp_path / "ray.parquet", Executor(2, "local"))
    assert (tally.documents, dict(tally.errors)) == (10, {"document": 2})
    assert (tmp_path / "ray.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()


def test_a_cluster_gives_the_catalogue_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CHUNK_ITEMS", 3)
    source, model = str(contracts(tmp_path / "in", 8, 2)), small_model.saved(tmp_path / "model")
    items, made = find_items([source]).items, []
    for name, executor in (("one", Executor()), ("ray", Executor(2, "local"))):
        store = Store(tmp_path / name / "indexes")
        collection, tally = collect(Job("index", model, store=str(store.folder)), source, items, store, executor)
        assert (tally.documents, dict(tally.errors), len(collection.failed)) == (10, {"document": 2}, 2)
        made.append(collection)
    assert made[0].about["documents"] == made[1].about["documents"] and len(made[0].catalogue) == 8
    for name, array in vars(made[0].catalogue).items():
        np.testing.assert_array_equal(getattr(made[1].catalogue, name), array, err_msg=name)
