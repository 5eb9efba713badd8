"""Held-out perplexity: what is held out, what is measured, and that it is kept."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from tests.train import small
from vcc.cli import main
from vcc.data.corpus import TokenStore, prepare, split_documents
from vcc.data.pretrain import MaskedLM, PretrainDataset
from vcc.errors import DataError
from vcc.tasks.needle import needle_tokenizer
from vcc.train.checkpoint import checkpoints
from vcc.train.objectives import Filling
from vcc.train.perplexity import Perplexity


def store_of(sizes: list[int]) -> TokenStore:
    """Document d is the token d, so many times."""
    tokens = np.repeat(np.arange(len(sizes)), sizes)
    return TokenStore(tokens, np.cumsum(sizes), "")


@pytest.mark.parametrize(("documents", "share", "held"), [(2, 0.01, 1), (100, 0.05, 5), (1000, 0.01, 10), (3, 0.9, 2)])
def test_documents_are_learned_from_or_held_out_never_both(documents: int, share: float, held: int) -> None:
    learned, told = split_documents(store_of([5] * documents), share)
    assert len(told) == held or (documents == 3 and 1 <= len(told) < 3)
    assert sorted([*learned, *told]) == list(range(documents)) and len(learned)


def test_one_document_cannot_be_held_out() -> None:
    with pytest.raises(DataError, match="at least two"):
        split_documents(store_of([5]), 0.01)


def test_a_dataset_reads_the_documents_it_is_given_and_no_others() -> None:
    store, hiding = store_of([40, 30, 50, 20, 60]), MaskedLM.of(needle_tokenizer())
    for documents in (np.array([1, 3, 4]), np.array([0, 2])):
        data = PretrainDataset(store, hiding, 12, seed=3, size=1000, documents=documents)
        assert data.per_epoch == int(np.diff(store.ends, prepend=0)[documents].sum()) // 10
        seen = np.concatenate([data.text(i) for i in range(2 * data.per_epoch)])
        assert set(seen.tolist()) == set(documents.tolist())


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary(tmp_path: Path) -> None:
    tokenizer = needle_tokenizer()
    (tmp_path / "text").mkdir()
    model = BertForMaskedLM(BertConfig.from_pretrained(small.encoder(tmp_path / "model"))).train()
    sequences = PretrainDataset(
        prepare(small.books(tmp_path / "text"), tokenizer, tmp_path / "tokens", limit=9),
        MaskedLM.of(tokenizer),
        60,
        0,
        100,
    )[:5]
    measured = [Perplexity(sequences, Filling(False, 0, None), size)(model) for size in (1, 2, 5)]
    for found in measured:
        assert found["perplexity"] == pytest.approx(math.exp(found["log_perplexity"]))
        assert found["log_perplexity"] == pytest.approx(measured[0]["log_perplexity"])
    assert model.training, "as it was"
    torch.nn.init.zeros_(model.cls.predictions.decoder.weight)
    torch.nn.init.zeros_(model.cls.predictions.decoder.bias)
    assert Perplexity(sequences, Filling(False, 0, None), 2)(model)["perplexity"] == pytest.approx(len(tokenizer))


def test_pretraining_measures_before_the_first_step_and_on_and_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").mkdir()
    model, text = small.encoder(tmp_path / "model"), small.books(tmp_path / "text")
    line = "--fresh --steps 4 --batch-size 2 --length 60 --device cpu --tokens-per-byte 9 --scales 4,1 --budget 3"
    line += " --preset vcc --eval-every 2 --eval-sequences 3 --window 64"
    start = ["pretrain", text, "--model", model, "--out", str(tmp_path / "run"), *line.split()]
    assert main(start) == 0
    said = capsys.readouterr().err
    assert "held out: 1 documents" in said and "7.5% of the tokens are masked; VCC is on" in said
    assert "step 0: log_perplexity" in said and "step 4: log_perplexity" in said
    [last, *_] = checkpoints(tmp_path / "run")
    history = json.loads((last / "trainer_state.json").read_text())["log_history"]
    assert [point["step"] for point in history if "eval_log_perplexity" in point] == [0, 2, 4]
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["preset"], record["held_out"], record["compressed"]["inputs"]) == ("vcc", 1, 8)


def test_a_preset_decides_what_is_not_said_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").mkdir()
    model, text = small.encoder(tmp_path / "model"), small.books(tmp_path / "text")
    line = "--steps 1 --batch-size 2 --length 60 --device cpu --tokens-per-byte 9"
    start = ["pretrain", text, "--model", model, *line.split()]
    assert main([*start, "--out", str(tmp_path / "run"), "--preset", "roberta-512", "--lr", "0.5"]) == 0
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["fresh"] is True and record["vcc"] is None and record["hiding"]["ratio"] == 0.15
    assert (record["lr"], record["warmup"], record["length"]) == (0.5, 1_000, 60)
    capsys.readouterr()
    assert main([*start, "--out", str(tmp_path / "no"), "--preset", "t5"]) == 2
    assert "--preset t5 is for an encoder-decoder" in capsys.readouterr().err
