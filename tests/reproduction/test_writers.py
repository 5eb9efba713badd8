"""Tables 2 and 7 at small scale, tiny: one T5 by span corruption, from it every model learns, writes and is timed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reproduction.experiment import Workspace
from reproduction.small import learning, write_jobs, writers
from reproduction.small.jobs import steps_in
from reproduction.small.layout import T5, T5_TOKENS, SmallLayout
from reproduction.small.pack import pack_for_t5, summaries
from reproduction.small.summaries import SummaryRows, SummaryTokens
from reproduction.table2 import Table2, repeated
from tests.reproduction import tiny_t5
from vcc.cli import main
from vcc.data.features import ExampleTokenizer
from vcc.data.pretrain import SpanCorruption
from vcc.errors import UsageError
from vcc.hosts import load
from vcc.hosts.forward.wrapped import Wrapped
from vcc.tasks import TASKS

pytest.importorskip("rouge_score")


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> SmallLayout:
    folder = tmp_path_factory.mktemp("writers")
    made = SmallLayout(tiny_t5.packed(folder), folder / "out", tiny_t5.SMALL)
    write_jobs.begin(made)
    return made


def curve(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "curve.json").read_text())
    return found


def test_spans_are_hidden_as_in_a_worked_example() -> None:
    """Eleven tokens, 15% of them: two, in one span. Kept pieces and hidden ones alternate, and the span stands last."""
    hiding = SpanCorruption(sentinel_ids=(90, 91), end_id=1)
    assert hiding.counts(11) == (2, 1)
    found = hiding.hide_words(np.arange(20, 31), np.random.default_rng(0))
    assert found.input_ids.tolist() == [*range(20, 29), 90, 1]
    assert found.labels.tolist() == [90, 29, 30, 1] and found.vip_mask.tolist() == [0] * 9 + [1, 0]
    assert hiding.counts(568) == (85, 28) and hiding.raw_length(512) == 568  # T5's rows of 512 tokens


def test_the_common_t5_learns_from_random_weights(layout: SmallLayout) -> None:
    found = curve(layout.start(T5))
    points = [point["log_perplexity"] for point in found["curve"] if "log_perplexity" in point]
    assert found["steps"] == 3 and len(points) == 2 and points[1] < points[0]
    assert (layout.out / T5_TOKENS / "train").is_dir() and not (layout.out / "tokens").exists()


QUICK = ("vcc-t5", "longt5")
NAMES = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in writers.WRITERS
]  # the others take the same road


@pytest.mark.parametrize("name", NAMES)
def test_every_model_goes_from_the_common_t5_to_scores_and_times(layout: SmallLayout, name: str) -> None:
    write_jobs.time_alone(layout, [{"name": name}])
    write_jobs.tune(layout, name, "squality")
    found = json.loads(layout.scores(name, "squality").read_text())
    assert found["length"] == {"t5-512": 32, "t5": 128, "longt5": 128, "vcc-t5": 128}.get(name, 512)
    assert found["examples"] == len(found["texts"]) == 3 and 0 <= found["metrics"]["rouge1"] <= 100
    assert 1 < found["log_perplexity"] < 8  # log 310 is 5.7
    assert found["cut_examples"] == (0 if found["length"] == 512 else 3)
    took = json.loads(layout.times(name).read_text())
    assert took["training_ms_each"] > 0 and took["forward_ms_each"] > 0
    model = writers.tuned(layout.tuned(name, "squality"))
    assert isinstance(model, Wrapped) == name.startswith("vcc") and model.config.dropout_rate == 0.0


def test_everyone_starts_with_the_same_weights(layout: SmallLayout) -> None:
    plain = writers.started("t5", layout.start(T5)).state_dict()
    for name in ("vcc-t5", "longt5"):
        own = writers.started(name, layout.start(T5)).state_dict()
        same = {key.replace("TransientGlobalSelf", "Self"): value for key, value in own.items()}
        assert all(torch.equal(same[key], value) for key, value in plain.items()), name


def test_equal_seconds_are_steps_by_the_time_of_one(layout: SmallLayout, tmp_path: Path) -> None:
    small = replace(tiny_t5.SMALL, batch=64, at_once=64)
    here = SmallLayout(tmp_path, tmp_path, writers.WRITERS["longt5-16k"].settings(small))
    assert (here.small.batch, here.small.at_once) == (32, 4)
    file = here.times("longt5-16k")
    file.parent.mkdir()
    file.write_text(json.dumps({"training_ms_each": 50.0, "training_gpu_ms_each": 25.0}))
    assert steps_in(here, "longt5-16k", 16.0, 7) == 20  # 16 s / (32 x 25 ms)
    with pytest.raises(UsageError, match="unknown model 't6'"):
        writers.writer("t6")


@pytest.mark.parametrize("task", ["qmsum", "squality"])
@pytest.mark.parametrize("length, written", [(32, 6), (512, 40)])
def test_rows_from_ids_are_those_of_the_text(layout: SmallLayout, task: str, length: int, written: int) -> None:
    tokenizer = load.load_tokenizer(layout.start(T5), local=True)
    tokens = SummaryTokens.load(summaries(layout.packed, task))
    rows = SummaryRows(tokens, tokenizer.eos_token_id, length, written)
    tokenize = ExampleTokenizer(tokenizer, "text", length, written)
    examples = TASKS[task]().load("train", str(layout.packed / "data"))
    pairs = [replace(example, answers=(answer,)) for example in examples for answer in example.answers]
    assert len(rows) == len(pairs) == (8 if task == "qmsum" else 16)  # every reference of SQuALITY is a target
    for i, pair in enumerate(pairs):
        own, right = rows[i + len(pairs)], tokenize(pair)
        assert own.row.input_ids.tolist() == right.row.input_ids.tolist()
        assert own.row.vip_count == right.row.vip_count <= tokens.most_vips()
        assert right.target_ids is not None and own.target_ids is not None
        assert own.target_ids.tolist() == right.target_ids.tolist()


def test_compiled_batches_have_one_shape(layout: SmallLayout) -> None:
    tokenizer = load.load_tokenizer(layout.start(T5), local=True)
    model = writers.started("vcc-t5", layout.start(T5))
    rows = SummaryRows(SummaryTokens.load(summaries(layout.packed, "qmsum")), tokenizer.eos_token_id, 128, 12)
    compiled = replace(layout, small=replace(layout.small, compile=True))
    fixed = write_jobs.writing(compiled, "vcc-t5", model, tokenizer, 256)
    free = write_jobs.writing(layout, "vcc-t5", model, tokenizer, 256)
    batch, plain = fixed.collate([rows[0], rows[1]]), free.collate([rows[0], rows[1]])
    assert batch["input_ids"].shape == (2, 256) and batch["labels"].shape == (2, 12)
    assert plain["input_ids"].shape == (2, 128) and plain["labels"].shape[1] < 12
    assert fixed.count(batch) == free.count(plain) and "vip_mask" in batch
    model.eval()
    torch.testing.assert_close(fixed.loss(model, batch), free.loss(model, plain), rtol=1e-4, atol=1e-4)


def test_a_weight_learns_at_the_rate_of_its_size() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8, bias=False))
    with torch.no_grad():
        model[0].weight.fill_(1.1)
        model[0].bias.fill_(0.0)
        model[1].weight.fill_(-0.06)
    groups = learning.groups_of(model, by_size=True)
    times = {id(one): (group["times"], group["weight_decay"]) for group in groups for one in group["params"]}
    assert times[id(model[0].weight)] == (1.0, 0.01) and times[id(model[1].weight)] == (1 / 16, 0.01)
    assert times[id(model[0].bias)] == (2**-10, 0.0)
    assert {group["times"] for group in learning.groups_of(model)} == {1.0}


class Stopped(Exception):
    pass


def test_a_t5_that_was_stopped_ends_as_if_it_was_not(
    layout: SmallLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = replace(layout, out=tmp_path)
    measured = 0
    plain, loss = write_jobs.LoopPlan, write_jobs.Filling.loss

    def stops(self: Any, model: Any, batch: Any) -> torch.Tensor:
        nonlocal measured
        measured += model.training
        if measured == 3:
            raise Stopped
        return loss(self, model, batch)

    monkeypatch.setattr(write_jobs, "LoopPlan", lambda *given: plain(*given, save_every=-1.0))
    monkeypatch.setattr(write_jobs.Filling, "loss", stops)
    with pytest.raises(Stopped):
        write_jobs.begin(again)
    assert list(again.start(T5).glob("checkpoint-2*")) and not (again.start(T5) / "curve.json").exists()
    monkeypatch.setattr(write_jobs.Filling, "loss", loss)
    write_jobs.begin(again)
    whole, own = (writers.tuned(one.start(T5)).state_dict() for one in (layout, again))
    assert all(torch.equal(own[key], value) for key, value in whole.items())


def test_what_is_timed_alone_on_a_gpu_is_compiled_beside_others_first(layout: SmallLayout, tmp_path: Path) -> None:
    on_a_gpu = replace(layout.small, models=("t5", "vcc-t5"), device="cuda", compile=True, together=2)
    at = Workspace("small", tmp_path, None, "", "", "", on_a_gpu)
    begin, *warm, clock = Table2().steps(at)[:4]
    assert [step.shown for step in warm] == ["small warm t5", "small warm vcc-t5"] and clock.alone
    assert all(step.needs == (begin.done,) and step.done == at.layout.compiled(step.shown[11:]) for step in warm)
    write_jobs.warm(layout, "longt5-16k")
    assert layout.compiled("longt5-16k").exists() and not layout.times("longt5-16k").exists()


def test_words_that_a_text_has_before_are_counted() -> None:
    assert repeated(["he said so he said so he said so", "to be"]) == "50"  # three of six times four words
    assert repeated(["to be"]) is None


def test_the_report_has_a_row_for_each_model_and_task(layout: SmallLayout) -> None:
    at = Workspace("small", layout.out, None, "", "", "", layout.small)
    if not layout.scores("t5-512", "squality").exists():
        write_jobs.time_alone(layout, [{"name": "t5-512"}])
        write_jobs.tune(layout, "t5-512", "squality")
    report = Table2().report(at)
    rows = {row[:2]: row for row in report.tables[0].rows}
    assert set(rows) == {(task, name) for task in ("qmsum", "squality") for name in writers.WRITERS}
    found = rows["squality", "t5-512"]
    scores = json.loads(layout.scores("t5-512", "squality").read_text())
    took = json.loads(layout.times("t5-512").read_text())
    assert found[2] == "32" and str(found[3]).startswith(f"{scores['metrics']['rouge1']:.1f}")
    assert found[6] == repeated(scores["texts"])
    assert found[7] == f"{scores['log_perplexity']:.3f}" and found[8] == "2"
    assert found[9] == pytest.approx(2 * 4 * took["training_ms_each"] / 1000)
    assert rows["qmsum", "longt5-16k"][2] == "512" and rows["qmsum", "longt5-16k"][3] is None
    assert "3 steps of 4 x 32 tokens of span corruption" in report.notes[0]
    drawn = report.pictures[0]
    assert drawn.title.startswith("squality, up to ") and drawn.points[0].line == "t5-512"
    assert drawn.points[0].y == scores["metrics"]["rougeL"] and report.pictures[-1].title == "qmsum, the paper"
    with pytest.raises(UsageError, match="--models mra: table 2 has t5-512, "):
        Table2().steps(replace(at, small=replace(at.small, models=("mra",))))


def test_packed_weights_are_where_it_starts(layout: SmallLayout, tmp_path: Path) -> None:
    pack_for_t5(tiny_t5.data(tmp_path / "data"), str(layout.start(T5)), tmp_path / "packed", ("qmsum",), megabytes=1.0)
    here = SmallLayout(tmp_path / "packed", tmp_path / "out", replace(layout.small, t5_steps=0))
    write_jobs.begin(here)
    first, own = (writers.tuned(one.start(T5)).state_dict() for one in (layout, here))
    assert all(torch.equal(own[key], value.bfloat16().float()) for key, value in first.items())
    with pytest.raises(UsageError, match="must hold some of sumpubmed"):
        pack_for_t5(tmp_path / "data", str(layout.start(T5)), tmp_path / "other", ("sumpubmed",), 1.0)


@pytest.mark.slow
def test_table_two_from_a_folder_of_data_to_its_report(tmp_path: Path) -> None:
    tiny_t5.model(tmp_path / "t5")
    tiny_t5.data(tmp_path / "data")
    common = ["--out", str(tmp_path / "out"), "--length", "128", "--tasks", "qmsum"]
    assert main(["reproduce", "table2", *common, "--pack", "true", "--data", str(tmp_path / "data")]) == 2  # no --t5
    made = ["--data", str(tmp_path / "data"), "--t5", str(tmp_path / "t5"), "--pack", "true"]
    assert main(["reproduce", "table2", *common, *made]) == 0
    settings = "--short 32 --t5-steps 2 --t5-batch 4 --batch 4 --at-once 2 --written 12 --examples 3 --tune-seconds 0.1"
    settings += " --device cpu --loaders 0 --compile false --together 1 --models t5-512,vcc-t5"
    shutil.rmtree(tmp_path / "data")
    assert main(["reproduce", "table2", *common, *settings.split(), "--run"]) == 0
    found = json.loads((tmp_path / "out" / "reports" / "table-2.json").read_text())
    rows = found["tables"][0]["rows"]
    assert [row[1] for row in rows] == ["t5-512", "vcc-t5"] and all(cell is not None for row in rows for cell in row)
