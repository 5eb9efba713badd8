"""The small scale with a common reader, seeds, both checkpoints and everything that the paper does not have."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM

import vcc
from reproduction.a5 import AppendixA5
from reproduction.experiment import Workspace
from reproduction.small import jobs, reports, steps
from reproduction.small.closing import ClosingBudget
from reproduction.small.corpus import pack_tokens, unpack_tokens
from reproduction.small.layout import PRESTART, SmallLayout
from reproduction.small.pack import pack
from reproduction.small.questions import HiddenQuestions, QuestionTokens
from reproduction.small.variants import VARIANTS, made, reading
from reproduction.table1 import Table1
from tests.reproduction import tiny
from vcc.data.features import ExampleTokenizer, Frame, tokenize_texts
from vcc.hosts import load
from vcc.hosts.forward.wrapped import state_of
from vcc.tasks import TASKS

SMALL = replace(tiny.SMALL, reader=True, tune_seconds=0.05, seeds=2)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> SmallLayout:
    folder = tmp_path_factory.mktemp("claim")
    made = SmallLayout(tiny.packed(folder), folder / "out", SMALL)
    jobs.begin(made)
    jobs.prestart(made)
    for start in ("start", PRESTART):
        jobs.read(made, start)
    return made


@pytest.mark.parametrize(
    "name", ["vcc-all", "vcc-near-1", "longformer-pre", pytest.param("vcc-pre-all", marks=pytest.mark.slow)]
)
def test_every_model_goes_from_the_reader_to_scores(layout: SmallLayout, name: str) -> None:
    jobs.time_alone(layout, [{"name": name, "setting": "own", "options": {}}])
    jobs.tune(layout, name, "squad_haystack")
    found = json.loads(layout.scores(name, "squad_haystack").read_text())
    assert 0 <= found["metrics"]["f1"] <= 100 and found["length"] == 128
    assert len(found["opened"]) == (2 if name.startswith("vcc") else 0)
    assert all(0 <= share <= 1 for share in found["opened"].values())
    took = json.loads(layout.times(name).read_text())["training_ms_each"]
    steps_taken = json.loads((layout.tuned(name, "squad_haystack") / "curve.json").read_text())["steps"]
    assert steps_taken == max(1, round(1000 * 0.05 / took / 4))
    if name == "vcc-all":
        held = load.load_config(layout.tuned(name, "squad_haystack"), local=True)
        assert held.vcc["budget"] == [70] and held.vcc["mean_norm"] and held.vcc["vip_window"] == "every"
        at = Workspace("small", layout.out, None, "", "", "", SMALL)
        rows = {row[0]: row for row in reports.comparison(at, ["dense"])[0].rows}
        assert {"dense", name} <= rows.keys() and rows[name][3] is not None and rows[name][8] > 0


def test_the_checkpoints_differ_in_where_they_normalise(layout: SmallLayout) -> None:
    plain, pre = (load.load_config(layout.start(kind), local=True) for kind in ("start", PRESTART))
    assert (plain.model_type, pre.model_type) == ("bert", "roberta-prelayernorm")
    assert plain.attention_probs_dropout_prob == pre.attention_probs_dropout_prob == 0.0
    assert (pre.hidden_size, pre.num_hidden_layers) == (plain.hidden_size, plain.num_hidden_layers)


@pytest.mark.parametrize("kind", ["windows", "bigbird", "mra", "dense", "vcc"])
def test_every_baseline_takes_the_pre_norm_checkpoint(layout: SmallLayout, kind: str) -> None:
    """Where it sees everything, it is the checkpoint itself."""
    from reproduction.baselines.start import KINDS, start_from

    model, _ = load.load_model(layout.start(PRESTART), AutoModelForMaskedLM, local=True)
    everything = {
        "windows": {"window": 64}, "bigbird": {"block": 32, "window": 3}, "mra": {"block": 8, "per_row": 4},
        "vcc": {"scales": (4, 1), "budget": (99,), "window_layers": 0},
    }.get(kind, {})  # fmt: skip
    model = model.double().eval()
    other = start_from(model, kind, 32, **everything).eval()
    ids = torch.randint(5, 200, (2, 30), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 20:] = 0
    given = {"input_ids": ids * mask, "attention_mask": mask}
    vips = {KINDS[kind].vips: (torch.arange(30) < 4).long().expand(2, 30)} if KINDS[kind].vips else {}
    with torch.no_grad():
        expected, actual = model(**given).logits[mask.bool()], other(**given, **vips).logits[mask.bool()]
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def test_windows_and_global_tokens_are_a_mask(layout: SmallLayout) -> None:
    from reproduction.baselines.windows import Windows

    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, 24, 8, dtype=torch.float64)
    real = torch.arange(24) < torch.tensor([[24], [17]])
    is_global = torch.arange(24) < torch.tensor([[3], [2]])
    out = Windows(window=6).attend_heads(q, k, v, real, is_global.long(), 0.3, 0)
    for b in range(2):
        for i in range(24):
            seen = [j for j in range(24) if real[b, j] and (abs(i - j) <= 3 or is_global[b, i] or is_global[b, j])]
            if real[b, i]:
                weights = (0.3 * q[b, :, i : i + 1] @ k[b][:, seen].mT).softmax(-1)
                torch.testing.assert_close(out[b, :, i], (weights @ v[b][:, seen])[:, 0])


def test_a_budget_closes_from_everything_to_its_own() -> None:
    settings = vcc.VccConfig(scales=(16, 1), budget=(70,))
    closing = ClosingBudget(settings, 4096, 0.5)
    budgets = [closing.at(progress).budget[0] for progress in (0.0, 0.1, 0.13, 0.26, 0.4, 0.5, 1.0)]
    assert budgets == [256, 256, 256, 194, 132, 70, 70] and closing.at(0.5) is settings
    assert ClosingBudget(vcc.VccConfig(scales=(64, 16, 1), budget=(8, 16)), 100, 0.5).at(0).budget == (8, 16)


def test_training_begins_with_the_dense_model(layout: SmallLayout) -> None:
    """One window holds the whole input: with everything open, VCC is the dense model."""
    tokenizer = load.load_tokenizer(layout.start(), local=True)
    model = reading("vcc-closing", layout.reader(), 128, {"budget": (2,)}).eval()
    closing = ClosingBudget(model.vcc, 128, 0.3)
    state_of(model).settings = closing.at(0.0)
    batch = jobs.answering(layout, "vcc-closing", model, tokenizer, 128).collate(
        [jobs.training_data(layout, "squad_haystack", tokenizer, 128)[i] for i in range(2)]
    )
    given = {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    with torch.no_grad():
        actual = model(**given, vip_mask=batch["vip_mask"]).start_logits
        expected = reading("dense", layout.reader(), 128).eval()(**given).start_logits
        state_of(model).settings = closing.at(1.0)
        closed = model(**given, vip_mask=batch["vip_mask"]).start_logits
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    assert float((closed - expected).abs().max()) > 1e-4


def test_hidden_questions_are_what_the_tokenizer_says(layout: SmallLayout) -> None:
    """A paragraph alone, from ids, against the ordinary way from texts; hidden, the answer is still the answer."""
    tokenizer = load.load_tokenizer(layout.start(), local=True)
    examples = TASKS["squad"]().load("train", str(layout.packed / "data"))
    tokens = QuestionTokens.of(examples, tokenizer)
    alone = HiddenQuestions(tokens, Frame.of(tokenizer), 32, 0, hidden=False)
    ordinary = ExampleTokenizer(tokenizer, "span", 32)
    for i, example in enumerate(examples):
        ours, theirs = alone[i], ordinary(example)
        assert np.array_equal(ours.row.input_ids, theirs.row.input_ids) and ours.spans == theirs.spans[:1]
        assert np.array_equal(ours.row.token_type_ids, theirs.row.token_type_ids)
        assert ours.row.vip_count == theirs.row.vip_count
    hidden = HiddenQuestions(tokens, Frame.of(tokenizer), 128, 0, hidden=True)
    for i in range(len(hidden)):
        one, again = hidden[i], hidden[i + len(hidden)]
        assert one.length == again.length == 128 and not np.array_equal(one.row.input_ids, again.row.input_ids)
        answer = [f.row.input_ids[f.spans[0][0] : f.spans[0][1] + 1].tolist() for f in (alone[i], one, again)]
        assert answer[0] == answer[1] == answer[2]


def test_packed_tokens_are_those_of_the_texts(tmp_path: Path) -> None:
    data, tokenizer = tiny.data(tmp_path / "data"), load.load_tokenizer(tiny.model(tmp_path / "model"), local=True)
    counted = pack_tokens(data, tokenizer, tmp_path / "packed")
    stores = [unpack_tokens(tmp_path / "packed" / split, tmp_path / split) for split in ("train", "validation")]
    assert counted["wikitext2"] == len(stores[0].tokens) and [len(one.ends) for one in stores] == [48, 2]
    known = {tuple(tokenizer(tiny.text(i, 300), add_special_tokens=False)["input_ids"]) for i in range(50)}
    found = {tuple(part.tolist()) for one in stores for part in np.split(one.tokens, one.ends[:-1])}
    assert found == known


def test_a_pack_that_is_full_tokenizes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reproduction.small import corpus

    data, tokenizer = tiny.data(tmp_path / "data"), load.load_tokenizer(tiny.model(tmp_path / "model"), local=True)
    asked: list[int] = []

    def tokenize(texts: list[str], tokenizer: Any) -> Any:
        asked.append(len(texts))
        return tokenize_texts(texts, tokenizer)

    monkeypatch.setattr(corpus, "BATCH", 20)
    monkeypatch.setattr(corpus, "tokenize_texts", tokenize)
    counted = pack_tokens(data, tokenizer, tmp_path / "packed", 1)
    assert asked == [20, 20], "the first text to validate on is the 28th of 50"
    stores = [unpack_tokens(tmp_path / "packed" / split, tmp_path / split) for split in ("train", "validation")]
    assert counted["wikitext2"] == len(stores[0].tokens) and [len(one.ends) for one in stores] == [1, 2]


def test_contracts_of_the_published_test_are_not_packed(tmp_path: Path) -> None:
    data = tiny.data(tmp_path)
    tiny.write(data / "cuad" / "train.jsonl", [{"doc_id": name} for name in ("a", "b")])
    tiny.write(data / "cuad" / "docs.jsonl", [{"doc_id": name, "document": f"w{i}"} for i, name in enumerate("abc")])
    (data / "cuad" / "official").mkdir()
    (data / "cuad" / "official" / "test_doc_ids.json").write_text('["b"]')
    from reproduction.small.corpus import SOURCES, texts

    cuad = next(source for source in SOURCES if source.name == "cuad")
    assert list(texts(data, cuad)) == ["w0"]


def test_seeds_and_starts_are_steps_of_their_own(tmp_path: Path) -> None:
    at = Workspace("small", tmp_path, None, "", "", "", replace(SMALL, models=("vcc-all", "vcc-pre")))
    shown = [step.shown for step in steps.comparison(at, at.small.models)]
    assert shown == [
        "small hide", "small begin", "small prestart", "small read start", "small read prestart",
        "small time vcc-all own, vcc-pre own",
        "small tune vcc-all squad_haystack", "small tune vcc-pre squad_haystack",
        "small tune vcc-all squad_haystack 1", "small tune vcc-pre squad_haystack 1",
        "small time vcc-all own, vcc-pre own",
    ]  # fmt: skip


def test_what_is_timed_is_compiled_beside_the_reader(layout: SmallLayout, tmp_path: Path) -> None:
    on_a_gpu = replace(SMALL, device="cuda", compile=True, together=3, models=("vcc-all", "dense"))
    at = Workspace("small", tmp_path, None, "", "", "", on_a_gpu)
    shown = [step.shown for step in steps.learning(at, on_a_gpu.models)]
    assert shown == ["small begin", "small read start", "small warm vcc-all", "small warm dense", shown[-1]]
    assert shown[-1] == "small time vcc-all own, dense own"
    jobs.warm(layout, "vcc-norm")
    assert layout.compiled("vcc-norm").exists() and not layout.times("vcc-norm").exists()


def test_one_graph_has_room_for_every_question(layout: SmallLayout, tmp_path: Path) -> None:
    here = SmallLayout(tiny.packed(tmp_path, ("hotpotqa", "fairytale_choices")), tmp_path / "out", SMALL)
    tokenizer = load.load_tokenizer(layout.start(), local=True)
    for task in ("hotpotqa", "fairytale_choices", "squad_haystack"):
        data = jobs.training_data(here, task, tokenizer, 128)
        most = max(data[i].row.vip_count for i in range(len(data)))  # type: ignore[arg-type]
        assert most <= jobs.most_vips(data) and jobs.most_vips(data) % 32 == 0


def test_hidden_test_questions_are_put_together_once(layout: SmallLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    layout.hidden().unlink(missing_ok=True)
    expected = jobs.sampled(layout, "squad_haystack", "validation")
    jobs.hide(layout)
    monkeypatch.delattr(jobs, "sampled")
    assert jobs.examples(layout, "squad_haystack", "validation") == expected and len(expected) == 4


def test_from_weights_to_a_reader_no_text_is_needed(tmp_path: Path) -> None:
    at = Workspace("small", tmp_path, None, "", "", "", replace(SMALL, start_steps=0))
    assert not Table1().reads_text(at) and AppendixA5().reads_text(at)
    assert Table1().reads_text(replace(at, small=replace(at.small, models=("vcc-pre",))))
    assert Table1().reads_text(replace(at, small=tiny.SMALL))
    data, model = tiny.data(tmp_path / "data"), tiny.model(tmp_path / "model")
    packed = pack(data, str(model), tmp_path / "packed", SMALL.tasks, megabytes=0.0)
    assert [file.name for file in (packed / "tokens").iterdir()] == ["questions.npz"]
    here = SmallLayout(packed, tmp_path / "out", at.small)
    jobs.begin(here)
    jobs.read(here, "start")
    assert here.repeated(1).reader() == here.reader() and (here.reader() / "curve.json").exists()


def test_masks_may_come_in_clusters(layout: SmallLayout) -> None:
    tokenizer = load.load_tokenizer(layout.start(), local=True)
    clustered = replace(layout, small=replace(SMALL, mask_window=16, mask_density=0.5))
    spread = []
    for one in (layout, clustered):
        data = jobs.sequences(one, "train", tokenizer, 128, 0, 8)
        spread.append(np.mean([np.ptp(np.flatnonzero(data[i].vip_mask)) for i in range(8)]))
    assert spread[1] < spread[0] / 2


def test_every_variant_can_be_made(layout: SmallLayout) -> None:
    for name, one in VARIANTS.items():
        if one.pretraining.get("window_layers", 0) <= 3:  # the tiny model has three
            assert made(name, layout.start(one.start), 128).config.hidden_size == 16
