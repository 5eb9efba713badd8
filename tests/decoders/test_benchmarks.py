"""What the benchmarks of decoders rest on: methods that see what they say they do, trials that hold their answers."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import decoder_million, decoder_steps, decoders_gpu
from benchmarks.decoder_methods import METHODS, Groups, Probe, Reading, Seen, attend_seen, by_key, by_kmeans
from benchmarks.decoder_recall import recall, recalls_of_trees
from benchmarks.decoder_results import Result, Results, summary, tables
from benchmarks.decoder_tasks import TASKS, right, trials
from benchmarks.decoder_texts import cache_of, cut, read_on, side_by_side
from benchmarks.decoders import OURS, Reader, Trees, settings
from tests.decoders.models import SMALL
from tests.decoders.read_prefix import NEW, N
from tests.decoders.read_prefix import model as model
from tests.decoders.read_prefix import prefix as prefix
from tests.decoders.read_prefix import text as text
from vcc.decoders.config import DecoderConfig
from vcc.decoders.interface import attend_layer
from vcc.decoders.layer import TreeLayer
from vcc.errors import UsageError


@torch.inference_mode()
def test_all_methods_that_open_all_are_the_model_itself(model: Any, text: torch.Tensor, prefix: Any) -> None:
    wanted = model(text[None, N:], past_key_values=cache_of(model, prefix)).logits[0]
    probe = Probe(model, text[:N], prefix)
    assert model.config._attn_implementation == "sdpa", "the model is as it was"
    for name in METHODS:
        found, rows = probe.logits(text[N:], name, opened=N)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)
        assert rows >= N + (NEW + 1) / 2
        fewer, fewer_rows = probe.logits(text[N:], name, opened=2)
        if name not in ("dense", "watch"):
            # First and last tokens, two leaves of 16, a row for each of 20 groups, and half of the new ones.
            assert fewer_rows <= 16 + 64 + 2 * 16 + 20 + (NEW + 1) / 2 and not torch.allclose(fewer, wanted, atol=1e-3)
    ours, rows = Trees(model, text[:N], prefix).logits(text[N:], "1000")
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-4)


def test_a_prefix_goes_on_from_a_shorter_one_and_from_a_file(
    model: Any, text: torch.Tensor, prefix: Any, tmp_path: Path
) -> None:
    half = read_on(model, text[: N // 2], [], tmp_path / "half.safetensors")
    for _ in range(2):  # made, then read
        whole = read_on(model, text[:N], half, tmp_path / "rest.safetensors")
        for (k, v), (own_k, own_v) in zip(prefix, whole, strict=True):
            torch.testing.assert_close(k, own_k, rtol=0, atol=2e-2)
            torch.testing.assert_close(v, own_v, rtol=0, atol=2e-2)
    assert cut(whole, 0, 7)[0][0].shape[2] == 7


def test_closed_groups_are_their_means() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 2, 3, 4), torch.randn(1, 16 + 8 + 64, 4), torch.randn(1, 16 + 8 + 64, 4)
    reading = Reading(q, k, v, torch.randn(1, 3, 4), torch.randn(1, 3, 4))
    labels = torch.tensor([[0, 0, 1, 1, 1, 0, 2, 2]])
    inner_k, inner_v = k[:, 16:24], v[:, 16:24]
    means = [torch.stack([part[0, labels[0] == g].mean(0) for g in range(3)])[None] for part in (inner_k, inner_v)]
    groups = Groups(labels, means[0], means[1], torch.tensor([[3.0, 3.0, 2.0]]))
    opened = torch.tensor([False, True, False])
    seen = Seen(opened[labels][:, None].expand(-1, 3, -1), (~opened).expand(1, 3, -1))
    found, rows = attend_seen(reading, seen, groups)
    for part, mean in ((k, means[0]), (v, means[1])):
        part[0, 16:24] = torch.where(opened[labels[0], None], part[0, 16:24], mean[0, labels[0]])
    for token in range(3):
        rows_k, rows_v = (torch.cat([a, b[:, : token + 1]], 1) for a, b in ((k, reading.new_k), (v, reading.new_v)))
        weights = (q[:, :, token : token + 1] @ rows_k[:, None].mT).softmax(3)
        torch.testing.assert_close(found[:, :, token : token + 1], weights @ rows_v[:, None], rtol=0, atol=1e-5)
        assert rows[0, token] == 16 + 64 + 3 + 3 + token + 1


def test_groups_are_whole_and_tighter_the_more_they_mind_the_keys() -> None:
    torch.manual_seed(0)
    keys = torch.randn(2, 256, 8) * torch.tensor([9.0, 5, 3, 2, 1, 1, 1, 1])
    labels = by_key(keys, 16, piece=128)
    for head in range(2):
        assert labels[head].bincount().tolist() == [16] * 16
        assert labels[head, :128].max() == 7 and labels[head, 128:].min() == 8

    def spread(labels: torch.Tensor) -> float:
        parts = [keys[h, labels[h] == g] for h in range(2) for g in range(16)]
        return sum(float((part - part.mean(0)).square().sum()) for part in parts if len(part))

    assert spread(by_kmeans(keys, 16)) < spread(labels) < 0.8 * spread(torch.arange(256).div(16).long().expand(2, -1))


class Letters:
    """A tokenizer of bytes."""

    def __call__(self, text: str, **_: Any) -> Any:
        found = torch.tensor([list(text.encode())])
        return type("Encoding", (), {"input_ids": found})


class Words:
    """A tokenizer whose tokens are whole words."""

    def __init__(self) -> None:
        names = ["".join(chr(97 + i // k % 26) for k in (1, 26, 676, 1, 26)) for i in range(20000)]
        self.words = list(dict.fromkeys(f" {name}" for name in names))
        self.places = {word: place for place, word in enumerate(self.words)}

    def __call__(self, text: str, **_: Any) -> Any:
        found = [self.places.get(word, len(self.places)) for word in re.findall(r" ?[^ ,]+|,", text)]
        return type("Encoding", (), {"input_ids": torch.tensor([found])})

    def decode(self, tokens: list[int]) -> str:
        return self.words[tokens[0]] if tokens[0] < len(self.words) else ""


@pytest.mark.parametrize("task", ["passkey", "needle", "variables"])
def test_trials_hold_their_answers_and_are_as_long_as_asked(task: str) -> None:
    hay = torch.tensor(list(b"A sentence that says nothing at all. " * 120))
    [trial, again] = [next(trials(task, Letters(), iter([hay]), 3000)) for _ in range(2)]
    assert len(trial.context) == 3000 and torch.equal(trial.context, again.context)
    text = bytes(trial.context.tolist()).decode()
    for question in trial.questions:
        answer = bytes(question.answer.tolist()).decode()
        assert answer.split()[-1] in text
        perfect = torch.nn.functional.one_hot(question.answer, 256).float()
        assert right(question, perfect) == 1.0 and right(question, perfect.roll(1, 1)) == 0.0


def test_common_words_are_found_by_what_is_likely_next() -> None:
    [question] = (trial := TASKS["common words"](Words(), torch.zeros(0), 900, random.Random(1))).questions
    assert question.choices is not None and len(question.answer) == 10 and len(question.choices) > 20
    times = torch.bincount(trial.context, minlength=20001)
    assert times[question.answer].min() > times[question.choices].max() > 0
    logits = torch.zeros(1, 20001)
    logits[0, question.answer] = 1.0
    assert right(question, logits) == 1.0 and right(question, -logits) == 0.0
    logits[0, question.answer[:4]] = -1.0
    assert right(question, logits) == pytest.approx(0.6)


def test_results_are_kept_and_summed_up(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    results = Results(file)
    for number, dense in enumerate((2.0, 3.0, 4.0)):
        results.add(Result("books", f"t{number}", 4096, "dense", "", dense, 4096))
        results.add(Result("books", f"t{number}", 4096, OURS, "8", dense + 0.01 * (number + 1), 500 + number))
    results.add(Result("books", "alone", 4096, OURS, "8", 9.0, 1))
    file.write_text(file.read_text() + '{"task": "books", "te')  # killed while writing
    again = Results(file)
    assert again.known == results.known
    [line] = summary(again.known.values(), "books", 4096)
    assert line.texts == 3 and line.rows == 501 and abs(line.mean - (2.718281828**0.02 - 1)) < 1e-6
    assert line.low <= line.mean <= line.high
    assert "| **VCC** | 8 | 501 | 12.2% | +2.0% |" in tables(again.known.values())


def test_recall_counts_the_best_keys_that_are_read() -> None:
    torch.manual_seed(0)
    scores, read = torch.randn(2, 3, 4, 30), torch.rand(2, 4, 30) < 0.4
    found = recall(scores, read, top=7)
    for head in range(2):
        for token in range(4):
            shares = []
            for vip in range(3):
                ranked = sorted(range(30), key=lambda key: -float(scores[head, vip, token, key]))
                shares.append(sum(bool(read[head, token, key]) for key in ranked[:7]) / 7)
            assert float(found[head, token]) == pytest.approx(sum(shares) / 3)
    assert recall(scores, torch.ones_like(read), top=100).min() == 1.0


@pytest.mark.parametrize(("places", "opened", "share"), [((0, 1, 2, 3), 1, 1.0), ((0, 4, 8, 13), 2, 0.5)])
def test_recall_of_a_tree_is_that_of_its_open_leaves(places: tuple[int, ...], opened: int, share: float) -> None:
    """Leaves of four tokens by position: four keys that matter stand in one of them, or in four."""
    settings = DecoderConfig(**SMALL, budget=opened, order="position")
    keys = torch.zeros(1, 1, 41, 8)
    for rank, place in enumerate(places):
        keys[0, 0, settings.first + place, 0] = 4.0 - 0.5 * rank
    layer = TreeLayer.filled(settings, keys, keys)
    query = torch.zeros(1, 1, 1, 8)
    query[..., 0] = 1.0
    with recalls_of_trees(top=4) as found:
        attend_layer(layer, query, 1, 1.0, False)
    assert [float(one) for one in found] == [share]
    attend_layer(layer, query, 1, 1.0, False)
    assert len(found) == 1, "nothing is counted afterwards"


def test_recall_is_measured_for_every_method(model: Any, text: torch.Tensor, prefix: Any) -> None:
    reader = Reader(model, text[:N], prefix)
    found = {}
    for method, setting in (("dense", ""), (OURS, "1000"), (OURS, "4"), ("Quest", "4"), ("first + local", "4")):
        reader.logits(text[N:], method, setting)
        found[method, setting] = reader.recall
    assert found["dense", ""] == found[OURS, "1000"] == 1.0
    assert all(0.0 < found[key] < 1.0 for key in list(found)[2:])
    assert found[OURS, "4"] > found["first + local", "4"]


def test_books_read_apart_stand_side_by_side(model: Any, text: torch.Tensor, prefix: Any) -> None:
    other = read_on(model, text.flip(0)[:N], [])
    both = side_by_side([other, prefix])
    assert [k.shape[2] for k, _ in both] == [2 * N] * len(prefix)
    # Dense attention to both, at the places of the own text, by the model itself.
    with torch.inference_mode():
        places = torch.arange(N, len(text))[None]
        expected = model(text[None, N:], past_key_values=cache_of(model, both), position_ids=places).logits[0]
    reader = Reader(model, text[:N], both)
    for method, setting in (("dense", ""), (OURS, "1000"), (OURS, "256:1000/1000"), (OURS, "1000@256")):
        found, _ = reader.logits(text[N:], method, setting)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    alone, _ = Reader(model, text[:N], prefix).logits(text[N:], "dense", "")
    assert not torch.allclose(alone, expected, atol=1e-2), "the other one is seen"


def test_a_task_that_dense_cannot_do_is_marked() -> None:
    results = [
        Result(task, "0", 2048, method, "", value, 100)
        for task, value in (("needle", 0.5), ("variables", 0.0))
        for method in ("dense", OURS)
    ]
    told = tables([*results, Result("recall", "0", 2048, "dense", "", 1.0, 100)])
    assert "| needle | variables (says nothing) |" in told and "| dense |  | 100 | 4.9% | 100.0% |" in told


@pytest.mark.slow
def test_times_are_taken_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decoders_gpu.decoders_gpu(tmp_path, small=True)
    for part in ("token", "build", "offload", "cross"):
        results = json.loads((tmp_path / f"{part}.json").read_text())["results"]
        assert results and all(one["ms"] > 0 and one["beside_ms"] > 0 for one in results)
    assert "T5, 8 tokens" in capsys.readouterr().out


@pytest.mark.slow
def test_the_benchmark_of_steps_compares_tokens_and_times_every_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decoder_steps.decoder_steps(tmp_path, small=True)
    told = json.loads((tmp_path / "decoder_steps.json").read_text())
    assert len(told["same_tokens"]) == 4 and all(line["same"] for line in told["same_tokens"])
    timed = {(line["method"], line["keys"], line["batch"]) for line in told["times"] if line["ms"] > 0}
    assert len(timed) == 4 * 2 * 2
    table = capsys.readouterr().out
    assert all(name in table for name in decoder_steps.NAMES.values())


def test_some_methods_are_measured_if_asked() -> None:
    assert settings(4096, only="dense, VCC 32,Quest 8") == [("dense", ""), (OURS, "32"), ("Quest", "8")]
    with pytest.raises(UsageError, match="'Nobody 8'"):
        settings(4096, only="Nobody 8")
    assert set(settings(4096, only="VCC 8")) < set(settings(4096))


def test_a_very_long_document_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decoder_million.decoder_million(tmp_path, small=True, pinned=2)
    told = json.loads((tmp_path / "decoder_million.json").read_text())
    assert told["token"]["ms"] > 0 and told["token"]["rows"] < decoder_million.SMALL.tokens
    assert told["read"]["tokens_read"] == decoder_million.SMALL.tokens and not told["read"]["extrapolated"]


def test_a_reading_that_was_cut_short_is_extrapolated() -> None:
    size = decoder_million.SMALL
    chunks = range(size.chunk, 8 * size.chunk + 1, size.chunk)
    times = [(at, 0.5 + at / 1000) for at in chunks]
    whole = decoder_million.whole_time(times[:5], replace(size, tokens=8 * size.chunk))
    assert whole == pytest.approx(sum(took for _, took in times))
