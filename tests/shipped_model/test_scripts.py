"""The scripts run from the command line, from prepared tokens to a model that users can load."""

import json
import lzma
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForQuestionAnswering

from shipped_model import calibrate_verdicts, find, in_eight_bits, prepare, score, speed, teacher, train, verdicts
from shipped_model.data import Mixture, TokenQuestion, TokenSets, Unit, save
from tests.documents import small_model
from vcc.commands.options import call
from vcc.data.example import Example
from vcc.documents.shipped import load_asker
from vcc.errors import UsageError

SCRIPTS = {
    "prepare": prepare.prepare,
    "teacher": teacher.teach,
    "train": train.train,
    "find": find.find,
    "score": score.score_all,
    "speed": speed.speed,
    "in_eight_bits": in_eight_bits.store,
    "calibrate_verdicts": calibrate_verdicts.calibrate_verdicts,
}
REQUIRED = {
    "prepare": "data",
    "teacher": "mpnet",
    "train": "way",
    "find": "name",
    "score": "found",
    "speed": "model",
    "in_eight_bits": "out",
    "calibrate_verdicts": "model",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_knows_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        call(SCRIPTS[name], ["--help"], name)
    told = capsys.readouterr().out
    assert f"--{REQUIRED[name]} " in told
    with pytest.raises(SystemExit, match="2"):
        call(SCRIPTS[name], [], name)
    assert "required" in capsys.readouterr().err


def units(number: int, length: int, seed: int) -> tuple[Unit, ...]:
    rng = np.random.default_rng(seed)
    asked = (
        TokenQuestion(np.array([7, 8]), ((3, 5),)),
        TokenQuestion(np.array([9]), ((3, 5),)),
        TokenQuestion(np.array([10]), ()),
    )
    return tuple(Unit(rng.integers(5, 60, length), asked, i) for i in range(number))


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As `prepare` would write it, of a model of 2 layers and pages of a few hundred tokens."""
    names = ("cuad", "squad11", "squad2", "hotpot", "musique", "medquad")
    sets = {f"{name}_train": units(12, 120, seed) for seed, name in enumerate(names)}
    sets |= {f"{name}_validation": units(2, 150, seed) for seed, name in enumerate(("cuad", "squad", "hotpot"))}
    book = np.random.default_rng(9).integers(5, 60, 20_000)
    save(TokenSets(sets, {"train": book, "validation": book}), tmp_path / "tokens.npz.xz")
    torch.manual_seed(0)
    BertForQuestionAnswering(
        BertConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    ).save_pretrained(tmp_path)
    small_model.tokenizer().save_pretrained(tmp_path)
    monkeypatch.setattr(find, "HIDDEN_AT", (600,))
    monkeypatch.setattr(train, "Mixture", lambda data, **given: Mixture(data, **given, tokens=2000))
    return tmp_path


EXTRA = "--longest 700 --shortest 600 --finding true --verdicts true"


@pytest.mark.parametrize("way", ["twice", "windows"])
def test_training_saves_a_model_and_what_it_finds(way: str, prepared: Path) -> None:
    random.seed(0)
    out = prepared / "out"
    line = f"--prepared {prepared} --way {way} --layers 3 --window-layers 2 --minutes 0.01 --examples 2 --looks 2"
    call(
        train.train,
        [*line.split(), *EXTRA.split(), "--workers", "0", "--out", str(out)],
        "train",
    )
    note = json.loads((out / f"run-{way}.json").read_text())
    assert note["steps"] > 0 and set(note["seconds_a_page"]) == {"squad", "hotpot", "hidden-0", "hidden-600", "cuad"}
    assert (out / way / verdicts.FILE).is_file()
    if way == "twice":
        asker = load_asker(str(out / way))
        assert asker.qa.settings.second_looks == 2 and asker.qa.settings.framed_windows
        assert asker.qa.config.to_dict() == note["settings"] and len(asker.model.bert.encoder.layer) == 3
        assert asker.model.device.type == "cpu" or torch.cuda.is_available()


def test_a_finished_model_answers_the_sets_that_are_wanted(prepared: Path) -> None:
    model = small_model.saved(prepared / "small")
    line = f"--prepared {prepared} --model {model} --name done --examples 2 --out {prepared / 'out'}"
    call(find.find, [*line.split(), "--sets", "squad,cuad"], "find")
    with lzma.open(prepared / "out" / "found-done.jsonl.xz", "rt") as file:
        answered = [json.loads(line)["set"] for line in file]
    assert answered == ["squad"] * 6 + ["cuad"] * 6  # two texts with three questions each
    assert set(json.loads((prepared / "out" / "run-done.json").read_text())["seconds_a_page"]) == {"squad", "cuad"}
    with pytest.raises(UsageError, match="unknown sets: squid"):
        call(find.find, [*line.split(), "--sets", "squid"], "find")


def test_contracts_are_timed_with_the_products_own_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = torch.get_num_threads()
    model = small_model.saved(tmp_path)
    text = "alpha beta gamma " * 50
    asked = [Example(str(i), "alpha ?", text, (), group="one") for i in range(3)]
    monkeypatch.setattr(speed, "contracts", lambda split, data: asked if split == "validation" else [])
    call(speed.speed, ["--data", str(tmp_path), "--model", model, "--contracts", "1"], "speed")
    torch.set_num_threads(threads)
    assert "1 contracts of 150 tokens on average" in capsys.readouterr().out
