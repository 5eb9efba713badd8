"""The commands on many documents: what they say before and after, and what they refuse."""

from pathlib import Path

import pytest

from tests.documents import small_model
from tests.fleet.collections import contracts
from vcc.cli import main
from vcc.commands.shared.fleet import FleetOptions, duration, is_collection


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model.saved(tmp_path_factory.mktemp("model"))


def test_a_dry_run_tells_and_writes_nothing(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = contracts(tmp_path / "in", 12, 1), tmp_path / "out.parquet"
    (folder / "song.mp3").write_bytes(b"no document")
    given = ["ask", str(folder), "w1 ?", "--each", "--out", str(out), "--model", model, "--workers", "3", "--dry-run"]
    assert main(given) == 0
    told = capsys.readouterr().err
    assert "13 documents" in told and "with 3 workers" in told and "estimated from 8 documents" in told
    assert "skipped song.mp3: not a document format" in told
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (["review", "IN", "--workers", "2"], "--out is missing"),
        (["review", "IN", "--workers", "2", "--out", "table.pdf"], "must end in .parquet, .csv, .xlsx"),
        (["review", "IN", "--workers", "0", "--out", "t.csv"], "--workers is 0"),
        (["review", "IN", "--seconds", "0", "--out", "t.csv"], "--seconds is 0"),
        (["review", "IN/*.none", "--out", "t.csv"], "no document of a known kind"),
        (["ask", "IN", "w1?", "--workers", "2"], "need --each"),
        (["ask", "IN", "--each", "--out", "t.csv"], "no question"),
        (["ask", "IN", "w1?", "--documents", "0"], "--documents is 0"),
        (["review", "missing.jsonl", "--out", "t.parquet"], "missing.jsonl"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_it_says_what_it_needs(
    given: list[str], rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    contracts(tmp_path / "IN", 1)
    assert main(given) in (1, 2)
    assert rule in " ".join(capsys.readouterr().err.split())


def test_what_is_work_for_a_fleet(tmp_path: Path) -> None:
    named = tmp_path / "odd[1].txt"
    named.write_text("a file whose name looks like a pattern")
    many = ["@list", "in/*.pdf", "s3://bucket/in", "texts.jsonl", "texts.parquet"]
    assert list(map(is_collection, many)) == [True] * 5
    assert not is_collection(str(named)) and not is_collection("contract.pdf") and not is_collection(str(tmp_path))
    assert not FleetOptions().wanted(["contract.pdf"], Path("out.xlsx")) and FleetOptions().wanted(
        ["in"], Path("out.parquet")
    )
    assert FleetOptions(workers=2).wanted(["in"], None)
    assert [duration(s) for s in (3.21, 600, 36_000)] == ["3.2 s", "10 min", "10.0 h"]
