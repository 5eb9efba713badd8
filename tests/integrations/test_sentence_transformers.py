"""Wrapped encoders inside sentence-transformers: longer texts, saved and loaded by it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel

import vcc
from tests.documents import small_model
from vcc.errors import UsageError
from vcc.hosts.forward.encoder import find_encoder

sentence_transformers = pytest.importorskip("sentence_transformers")
SETTINGS = vcc.VccConfig(scales=(8, 1), budget=(4,), window=16, window_layers=1, dense_below=0, explore=0.0)
OPEN = vcc.VccConfig(scales=(8, 1), budget=(1000,), window=512, window_layers=0, dense_below=0, explore=0.0)
LONG = " ".join(small_model.text(300, 1).split())


def saved(folder: Path, kind: Any, **more: Any) -> str:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=len(small_model.WORDS) + 7, max_position_embeddings=64, **sizes, **more)
    kind(config).eval().save_pretrained(folder)
    tokenizer = small_model.tokenizer()
    tokenizer.model_max_length = 64
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_a_sentence_transformer_reads_beyond_its_positions_and_comes_back_from_disk(tmp_path: Path) -> None:
    from vcc.integrations.sentence_transformers import read_long

    model = sentence_transformers.SentenceTransformer(saved(tmp_path / "plain", BertModel), device="cpu")
    short = model.encode(LONG)
    long = read_long(model, 1000, SETTINGS).encode(LONG)
    assert abs(long - short).max() > 1e-4, "the end of the text counts"
    report = find_encoder(model[0].auto_model).vcc_state.report
    assert report[-1].tokens > 300 and report[-1].rows < report[-1].tokens
    model.save_pretrained(str(tmp_path / "long"))
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "long"), device="cpu")
    assert again.max_seq_length == 1000 and type(again[0].auto_model) is type(model[0].auto_model)
    assert again.encode(LONG) == pytest.approx(long, abs=1e-5)


def test_a_cross_encoder_with_every_node_opened_equals_the_plain_one(tmp_path: Path) -> None:
    from vcc.integrations.sentence_transformers import read_long

    folder = saved(tmp_path / "plain", BertForSequenceClassification, num_labels=1)
    model = sentence_transformers.CrossEncoder(folder, device="cpu")
    pairs = [("w1 w2?", " ".join(LONG.split()[:40])), ("w1 w2?", " ".join(LONG.split()[20:50]))]
    plain = model.predict(pairs)
    assert read_long(model, 1000, OPEN).predict(pairs) == pytest.approx(plain, abs=1e-4)
    whole = model.predict([("w1 w2?", LONG)])
    model.save_pretrained(str(tmp_path / "long"))
    again = sentence_transformers.CrossEncoder(str(tmp_path / "long"), device="cpu")
    assert again.predict([("w1 w2?", LONG)]) == pytest.approx(whole, abs=1e-5)


def test_what_cannot_be_wrapped_raises(tmp_path: Path) -> None:
    from vcc.integrations.sentence_transformers import read_long

    model = sentence_transformers.SentenceTransformer(saved(tmp_path / "plain", BertModel), device="cpu")
    with pytest.raises(UsageError, match="max_length"):
        read_long(model, 0)
