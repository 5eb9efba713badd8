"""On a Ray cluster the table is the same, bit for bit."""

from pathlib import Path

import pytest

from tests.documents import small_model
from tests.fleet.collections import contracts
from vcc.documents.review_table import Question
from vcc.fleet import run as running
from vcc.fleet.job import Job
from vcc.fleet.run import Executor, run
from vcc.fleet.sources import find_items

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow  # make test-ray


def test_a_cluster_gives_the_table_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CHUNK_ITEMS", 3)
    items = find_items([str(contracts(tmp_path / "in", 8, 2))]).items
    job = Job("ask", small_model.saved(tmp_path / "model"), (Question("w1 w2 ?"),), top=2)
    run(job, items, tmp_path / "one.parquet")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        tally = run(job, items, tmp_path / "ray.parquet", Executor(2, "local"))
    finally:
        ray.shutdown()
    assert (tally.documents, dict(tally.errors)) == (10, {"document": 2})
    assert (tmp_path / "ray.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()
