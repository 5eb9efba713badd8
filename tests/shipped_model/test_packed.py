"""Windows in one row give the logits and gradients of padded windows."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

import vcc
from shipped_model import train
from shipped_model.packed import PackedWindows
from tests.hosts.models import build, ragged
from tests.shipped_model.test_scripts import EXTRA, prepared  # noqa: F401
from vcc.commands.options import call


def small_bert() -> Any:
    return build("bert", "AutoModelForQuestionAnswering", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def windows() -> dict[str, Tensor]:
    """Windows padded on either side and not at all, and one of a single token."""
    batch = ragged()
    real = torch.cat([batch.real, torch.arange(45)[None] < 1])
    ids = torch.cat([batch.ids, batch.ids[2:]]) * real
    return {"input_ids": ids, "attention_mask": real.long(), "token_type_ids": (ids > 50).long()}


def logits(reader: Any) -> Tensor:
    out = reader(**windows())
    return torch.stack([out.start_logits, out.end_logits]) * windows()["attention_mask"]


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("compiled", [pytest.param(True, marks=pytest.mark.slow), False])
def test_they_are_read_as_with_padding(wrapped: bool, compiled: bool) -> None:
    plain = small_bert()
    model = vcc.wrap(plain, vcc.VccConfig(scales=(4, 1), budget=(2,), dense_below=46)) if wrapped else plain
    packed, oracle = PackedWindows(model, compiled), copy.deepcopy(plain)
    found, right = logits(packed), logits(oracle)
    torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)
    weights = torch.randn(right.shape, generator=torch.Generator().manual_seed(2), dtype=right.dtype)
    (found * weights).sum().backward()
    (right * weights).sum().backward()
    expected = {name: weight.grad for name, weight in oracle.named_parameters() if weight.grad is not None}
    assert len(expected) > 30
    for name, weight in model.named_parameters():
        if name in expected:
            torch.testing.assert_close(weight.grad, expected[name], rtol=1e-8, atol=1e-9)


def test_what_the_model_learns_the_packed_reader_knows_and_its_padding_stays_allowed() -> None:
    model = small_bert()
    packed, before = PackedWindows(model), logits(small_bert())
    with torch.no_grad():
        model.qa_outputs.bias += 1.0
    torch.testing.assert_close(logits(packed), before + windows()["attention_mask"])
    torch.testing.assert_close(logits(model), before + windows()["attention_mask"], msg="it reads masks as ever")


def test_it_drops_out_exactly_when_the_model_trains() -> None:
    model = small_bert()
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5
    packed = PackedWindows(model)
    model.train()
    assert not torch.equal(logits(packed), logits(packed))
    model.eval()
    assert torch.equal(logits(packed), logits(packed))


def test_dropout_of_attention_is_refused() -> None:
    model = small_bert()
    model.config.attention_probs_dropout_prob = 0.1
    with pytest.raises(ValueError, match=r"attention_probs_dropout_prob is 0\.1: it must be 0"):
        PackedWindows(model)


@pytest.mark.slow
def test_training_can_read_windows_by_compiled_layers(prepared: Path) -> None:  # noqa: F811
    before = counters["stats"]["unique_graphs"]
    line = (
        f"--prepared {prepared} --way twice --layers 3 --window-layers 2 --minutes 20 --steps 6 --examples 0 --looks 2"
    )
    call(
        train.train,
        [*line.split(), *EXTRA.split(), "--compile", "true", "--workers", "0", "--out", str(prepared)],
        "train",
    )
    assert json.loads((prepared / "run-twice.json").read_text())["steps"] == 6
    assert counters["stats"]["unique_graphs"] > before
