"""The small scale, tiny: every kind learns, is scored and timed; a training that was stopped ends as if it was not."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from reproduction.baselines.block_models import pattern_of
from reproduction.experiment import Workspace, unique
from reproduction.loop import LoopPlan
from reproduction.small import jobs, learning, steps
from reproduction.small.layout import SmallLayout
from reproduction.small.settings import settle
from reproduction.small.variants import TABLE, VARIANTS, as_closed, loaded, variant
from tests.reproduction import tiny
from vcc.data.example import Example
from vcc.errors import UsageError


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> SmallLayout:
    folder = tmp_path_factory.mktemp("small")
    made = SmallLayout(tiny.packed(folder), folder / "out", tiny.SMALL)
    jobs.begin(made)
    return made


OTHERS = [
    pytest.param(name, marks=pytest.mark.slow) for name in (*TABLE, "vcc-similarity") if name not in ("vcc", "mra")
]


@pytest.mark.parametrize("name", ["vcc", "mra", *OTHERS])
def test_every_model_goes_from_the_common_checkpoint_to_scores_and_times(layout: SmallLayout, name: str) -> None:
    jobs.pretrain(layout, name)
    learned = json.loads((layout.pretrained(name) / "curve.json").read_text())["curve"]
    assert learned[0]["step"] == 0 and learned[-1]["step"] == 2
    assert all(5 * 0.5 < point["log_perplexity"] < 8 for point in learned if "log_perplexity" in point)  # log 208: 5.3
    jobs.answer(layout, name)
    jobs.tune(layout, name, "squad_haystack")
    found = json.loads(layout.scores(name, "squad_haystack").read_text())
    assert found["examples"] == 4 and 0 <= found["metrics"]["f1"] <= 100
    assert found["length"] == (32 if name == "dense-512" else 128)
    assert (found["cut_answers"] > 0) == (name == "dense-512")
    jobs.time_alone(layout, [{"name": name, "setting": "own", "options": {}}])
    assert json.loads(layout.times(name).read_text())["training_ms_each"] > 0


def test_everyone_starts_with_the_same_weights(layout: SmallLayout) -> None:
    from reproduction.small.variants import made

    start = {k: v for k, v in made("dense", layout.start(), 128).base_model.encoder.state_dict().items()}
    for name in TABLE:
        own = made(name, layout.start(), 128).base_model.encoder.state_dict()
        assert start.keys() <= own.keys() and all(torch.equal(own[key], value) for key, value in start.items())


@pytest.mark.slow
def test_other_settings_are_tuned_with_and_other_lengths_are_read(layout: SmallLayout) -> None:
    for name, options in (("longformer", {"window": 8}), ("mra", {"per_row": 1}), ("vcc", {"budget": [3]})):
        if not layout.answering(name).exists():
            jobs.pretrain(layout, name)
            jobs.answer(layout, name)
        jobs.tune(layout, name, "squad_haystack")
        jobs.tune(layout, name, "squad_haystack", "other", options)
        assert json.loads(layout.scores(name, "squad_haystack", "other").read_text())["setting"] == "other"
    other = {name: layout.tuned(name, "squad_haystack", "other") for name in ("longformer", "mra", "vcc")}
    assert loaded("longformer", other["longformer"], 128).config.attention_window == [8] * 3
    assert pattern_of(loaded("mra", other["mra"], 128, {"per_row": 1})).per_row == 1
    assert json.loads((other["vcc"] / "config.json").read_text())["vcc"]["budget"] == [3]
    assert json.loads((layout.tuned("vcc", "squad_haystack") / "config.json").read_text())["vcc"]["budget"] != [3]
    for name in ("vcc", "longformer"):
        jobs.score(layout, name, "squad_haystack", length=512)
        assert json.loads(layout.scores(name, "squad_haystack", length=512).read_text())["length"] == 512


def test_a_training_that_was_stopped_ends_as_if_it_was_not(layout: SmallLayout, tmp_path: Path) -> None:
    """With dropout and random cuts, which draw numbers in every step, and with a loader process."""

    def learn(folder: Path, stops_after: int | None) -> dict[str, torch.Tensor]:
        tokenizer = jobs.load.load_tokenizer(layout.start(), local=True)
        model = jobs.variants.made("vcc", layout.start(), 128)
        data = jobs.MaskedSequences(jobs.sequences(layout, "train", tokenizer, 128, 0, 2**40))
        plan = LoopPlan(1e-3, 6, save_every=-1.0, ema=0.5)
        objective = learning.MaskedWords(tokenizer.pad_token_id, "vip_mask")
        small = replace(layout.small, loaders=1)
        measured = 0

        class Stopped(learning.MaskedWords):
            def loss(self, *given: object) -> torch.Tensor:
                nonlocal measured
                measured += 1
                if stops_after is not None and measured > stops_after * small.batch // small.at_once:
                    raise KeyboardInterrupt
                return super().loss(*given)

        if stops_after is not None:
            with pytest.raises(KeyboardInterrupt):
                stopped = Stopped(objective.pad_id, objective.vips)
                learning.train(model, stopped, data, small, plan, folder, say=lambda _: None)
            return learn(folder, None)
        learning.train(model, objective, data, small, plan, folder, say=lambda _: None)
        lines = (folder / "losses.csv").read_text().splitlines()
        assert [line.split(",")[0] for line in lines[1:]] == list("123456") and not list(folder.glob("checkpoint*"))
        return model.state_dict()

    whole, again = learn(tmp_path / "whole", None), learn(tmp_path / "again", 3)
    assert all(torch.equal(whole[key], again[key]) for key in whole)


def test_masked_words_cost_what_the_whole_head_says(layout: SmallLayout) -> None:
    tokenizer = jobs.load.load_tokenizer(layout.start(), local=True)
    model = jobs.variants.made("dense", layout.start(), 128).eval()
    objective = learning.MaskedWords(tokenizer.pad_token_id, None)
    data = jobs.sequences(layout, "train", tokenizer, 128, 0, 8)
    batch = objective.collate([data[0], data[1]])
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    right = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
    torch.testing.assert_close(objective.loss(model, batch), right)
    short = learning.MaskedWords(tokenizer.pad_token_id, None, row=32).collate([data[0], data[1]])
    assert short["input_ids"].shape == (8, 32) and objective.count(short) == objective.count(batch)


def test_a_folder_keeps_its_settings(tmp_path: Path) -> None:
    settle(tmp_path, tiny.SMALL)
    settle(tmp_path, replace(tiny.SMALL, together=3, models=("vcc",)))
    with pytest.raises(UsageError, match="tune_steps 2 then, 3 now"):
        settle(tmp_path, replace(tiny.SMALL, tune_steps=3))


def test_variants_change_one_thing_each() -> None:
    base = variant("vcc")
    joined = ("vcc-last", "vcc-mass", "vcc-all", "vcc-all-open", "vcc-pre-all", "vcc-question")
    alone = [name for name in VARIANTS if name.startswith("vcc-") and not name.startswith("vcc-near-")]
    for name in [name for name in alone if name not in joined]:
        other = variant(name)
        changed = {k for k in other.answering if other.answering[k] != base.answering.get(k)}
        trained = [getattr(other, k) != getattr(base, k) for k in ("start", "closing", "opening", "pieces")]
        assert len(changed) + sum(trained) + ((other.steps, other.tuning) != (1, 1)) == 1, name
    with pytest.raises(UsageError, match="unknown model 'vc'"):
        variant("vc")


def test_paragraphs_are_compressed_as_much_as_long_texts() -> None:
    assert as_closed("vcc", 512 / 4096) == {"budget": (9,)}  # of 32 segments, as 70 of 256
    assert as_closed("vcc-open", 512 / 4096) == {"budget": (18,)} and as_closed("longformer", 0.1) == {}


def own(*models: str) -> list[steps.Setting]:
    return [steps.Setting(model, "own", {}) for model in models]


def test_one_process_times_what_has_no_times_yet(tmp_path: Path) -> None:
    at = Workspace("small", tmp_path, None, "", "", "", tiny.SMALL)
    first, both = steps.clock(at, own("vcc", "mra")), steps.clock(at, own("vcc-half", "vcc", "mra"))
    assert len(unique([first, both, steps.clock(at, own("vcc", "mra"))])) == 2  # they end with the same file
    for name in ("vcc", "mra"):
        file = tmp_path / "times" / f"{name}-own.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text("{}")
    left = steps.clock(at, own("vcc-half", "vcc", "mra"))
    assert left.done.name == "vcc-half-own.json" and json.loads(left.command[-1])["each"] == [
        {"name": "vcc-half", "setting": "own", "options": {}}
    ]
    assert steps.clock(at, own("vcc", "mra")).done.exists()


def test_a_model_that_cannot_be_timed_does_not_hold_up_the_others(
    layout: SmallLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = []

    def time_one(layout: SmallLayout, name: str, setting: str, options: dict[str, object]) -> None:
        if name == "mra":
            raise RuntimeError("no room")
        timed.append(name)

    monkeypatch.setattr(jobs, "time_one", time_one)
    with pytest.raises(ExceptionGroup) as failed:
        jobs.time_alone(layout, [{"name": name, "setting": "own", "options": {}} for name in ("mra", "vcc", "dense")])
    assert timed == ["vcc", "dense"] and failed.value.exceptions[0].__notes__ == ["while mra was timed with own"]


def test_contracts_are_drawn_with_and_without_an_answer_equally_often() -> None:
    def example(i: int) -> Example:
        return Example(str(i), "what?", "a b c", answers=("b",), answer_spans=((2, 3),))

    answered, empty = [example(i) for i in range(4)], [Example(str(i), "what?", "a b c") for i in range(4, 13)]
    far = Example("far", "what?", "a b c d", answers=("d",), answer_spans=((6, 7),))
    drawn = jobs.balanced([*answered, *empty, far], reach=3)
    assert sum(bool(example.answers) for example in drawn) == 8 and len(drawn) == 8 + 9
    assert {example.id for example in drawn} == {str(i) for i in range(13)}, "what is out of sight is not drawn"
    assert jobs.balanced(empty, 3) == empty and jobs.balanced(answered, 3) == answered
