"""A model is stored in 8 bits whole: what is not rounded comes along as it is."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig

from shipped_model.average import AverageOptions, average
from shipped_model.in_eight_bits import StoreOptions, store
from tests.documents import small_model
from vcc.documents.shipped import load_asker
from vcc.errors import UsageError
from vcc.qa.verdicts import FILE as VERDICTS
from vcc.qa.verdicts import load_head

WEIGHTS = "model.safetensors"


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    folder = Path(small_model.saved(tmp_path / "trained"))
    save_file({"weight": torch.randn(3, 16), "bias": torch.randn(3)}, folder / VERDICTS)
    return folder


def test_only_matrices_of_the_encoder_change(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    store(StoreOptions(trained, out))
    before, after = load_file(trained / WEIGHTS), load_file(out / WEIGHTS)
    rounded = {name for name, weight in before.items() if weight.ndim == 2 and name.startswith("bert.")}
    assert {name for name, weight in after.items() if weight.dtype == torch.int8} == rounded
    assert len(rounded) == 3 + 6 * 3 and after.keys() >= before.keys() and len(after) == len(before) + len(rounded)
    assert all(torch.equal(after[name], before[name]) for name in before.keys() - rounded)
    for path in trained.iterdir():
        if path.name not in (WEIGHTS, "config.json"):
            assert (out / path.name).read_bytes() == path.read_bytes()
    asker = load_asker(str(out))
    assert load_head(out, asker.model) is not None and len(asker.tokenizer) == len(small_model.tokenizer())


def test_what_cannot_be_stored_is_refused_and_leaves_nothing(trained: Path, tmp_path: Path) -> None:
    out, stored = tmp_path / "out", tmp_path / "stored"
    store(StoreOptions(trained, stored))
    with pytest.raises(UsageError, match="8 bits already"):
        store(StoreOptions(stored, out))
    BertConfig().save_pretrained(tmp_path / "plain")
    with pytest.raises(UsageError, match="--model is a bert"):
        store(StoreOptions(tmp_path / "plain", out))
    with pytest.raises(UsageError, match="is stored in 8 bits: average"):
        average(AverageOptions((stored, stored), out))
    assert not out.exists()
    with pytest.raises(UsageError, match="--out .* exists"):
        store(StoreOptions(trained, stored))
