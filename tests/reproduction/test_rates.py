"""A search over learning rates: chosen on one half, reported on the other, continued from what was there."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reproduction.experiment import ProcessStep, Workspace, unique
from reproduction.small import jobs, rates, reports, steps
from reproduction.small.layout import SmallLayout
from tests.reproduction import tiny
from vcc.data.example import Example
from vcc.errors import DataError, UsageError

SMALL = replace(tiny.SMALL, reader=True)
SEARCH = replace(SMALL, rates=(1e-4, 3e-3), seeds=2, models=("dense-512",))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> SmallLayout:
    """A folder of a run without a search."""
    folder = tmp_path_factory.mktemp("rates")
    made = SmallLayout(tiny.packed(folder), folder, SMALL)
    jobs.begin(made)
    jobs.read(made, "start")
    jobs.tune(made, "dense-512", "squad_haystack")
    return made


def run(step: ProcessStep, at: Workspace) -> None:
    """What the process of a step does, as its command says."""
    what, arguments = step.command[-2:]
    given = json.loads(arguments)
    layout = at.layout.repeated(given.pop("repeat", 0)).rated(given.pop("rate", None))
    jobs.JOBS[what](layout, **given)
    assert step.done.exists()


def test_a_search_goes_on_from_a_run_without_one(before: SmallLayout) -> None:
    at = Workspace("small", before.out, None, "", "", "", SEARCH)
    weights = before.tuned("dense-512", "squad_haystack") / "model.safetensors"
    old = weights.stat().st_mtime_ns
    plan = unique(steps.search(at, "dense-512", "squad_haystack"))
    assert [step.shown for step in plan] == [
        "small tune dense-512 squad_haystack", "small tune dense-512 squad_haystack 0.003",
        "small choose dense-512 squad_haystack", "small again dense-512 squad_haystack 1",
    ]  # fmt: skip
    assert [step.done.exists() for step in plan] == [True, False, False, False]
    without = replace(at, small=replace(SEARCH, rates=(), seeds=1))
    assert plan[0].done == steps.comparison(without, ["dense-512"])[-2].done, "one file of the same run"
    for step in plan[1:]:
        assert all(need.exists() for need in step.needs)
        run(step, at)
    assert weights.stat().st_mtime_ns == old, "it was not trained again"
    found = json.loads(at.layout.chosen("dense-512", "squad_haystack").read_text())
    chosen = {float(rate): halves["chooses"]["f1"] for rate, halves in found["scores"].items()}
    assert chosen.keys() == set(SEARCH.rates) and chosen[found["rate"]] == max(chosen.values())
    second = at.layout.repeated(1).rated(found["rate"])
    assert second.scores("dense-512", "squad_haystack").exists()
    other = next(rate for rate in SEARCH.rates if rate != found["rate"])
    assert not at.layout.repeated(1).rated(other).scores("dense-512", "squad_haystack").exists()
    lines = (at.layout.rated(3e-3).tuned("dense-512", "squad_haystack") / "losses.csv").read_text().splitlines()
    assert max(float(line.split(",")[2]) for line in lines[1:]) == 3e-3

    table = reports.searched(at, ["dense-512", "vcc"])[0]
    row, missing = (dict(zip(table.columns, cells, strict=True)) for cells in table.rows)
    assert row["best rate"] == f"{found['rate']:g}" and row["seeds"] == "2" and missing["best rate"] is None
    both = [
        json.loads(at.layout.repeated(n).rated(found["rate"]).scores("dense-512", "squad_haystack").read_text())
        for n in (0, 1)
    ]
    mean = sum(one["halves"]["reported"]["f1"] for one in both) / 2
    assert str(row["its score"]).startswith(f"{mean:.1f} (") and not reports.searched(without, ["vcc"])


def test_other_rates_are_another_search(tmp_path: Path) -> None:
    layout = SmallLayout(tmp_path, tmp_path, SEARCH)
    other = replace(layout, small=replace(SEARCH, rates=(1e-4, 2e-4)))
    assert layout.chosen("vcc", "cuad") != other.chosen("vcc", "cuad")
    assert layout.chosen("vcc", "cuad") == replace(layout, small=replace(SEARCH, rates=(3e-3, 1e-4))).chosen(
        "vcc", "cuad"
    )
    assert layout.rated(3e-3).reader() == layout.reader()
    assert layout.rated(3e-3).answering("vcc") == layout.answering("vcc")


def test_documents_are_in_one_half() -> None:
    examples = [Example(str(i), "what?", "text", group=f"d{i * i % 7}") for i in range(40)]
    found = rates.halves(examples)
    assert sorted(found["chooses"] + found["reported"]) == list(range(40))
    groups = [{examples[i].group for i in half} for half in found.values()]
    assert not groups[0] & groups[1] and all(groups)
    assert len(rates.halves([replace(one, group="") for one in examples])["reported"]) == 20
    with pytest.raises(DataError, match="1 documents"):
        rates.halves([replace(one, group="d") for one in examples])


def test_the_reported_half_does_not_choose() -> None:
    found = {
        1e-4: {"chooses": {"f1": 10.0}, "reported": {"f1": 90.0}},
        2e-4: {"chooses": {"f1": 20.0}, "reported": {"f1": 5.0}},
        4e-4: {"chooses": {"f1": 20.0}, "reported": {"f1": 80.0}},
    }
    assert rates.best(found, "f1") == 2e-4


@pytest.mark.parametrize("wrong", [(1e-4, 1e-4), (0.0,), (1e-4, -1.0)])
def test_rates_are_positive_and_different(wrong: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="--rates"):
        replace(SMALL, rates=wrong)
