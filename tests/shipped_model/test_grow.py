"""A grown model starts as the model it was grown from, and all of it learns."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForQuestionAnswering

import vcc
from shipped_model import train
from shipped_model.grow import followed, grow, window_layers_of
from shipped_model.in_eight_bits import StoreOptions, store
from shipped_model.train import TrainOptions
from tests.documents import small_model
from tests.shipped_model.test_scripts import prepared  # noqa: F401

READERS = {f"attention.self.{name}": "output.LayerNorm" for name in ("query", "key", "value")} | {
    "intermediate.dense": "attention.output.LayerNorm"
}
OUTPUTS = ("attention.output.dense.weight", "output.dense.weight")


def plain(layers: int = 3) -> Any:
    """A model in float64 whose norms are far from doing nothing."""
    torch.manual_seed(0)
    sizes = dict(vocab_size=50, hidden_size=16, num_attention_heads=2, intermediate_size=24, initializer_range=0.3)
    model = BertForQuestionAnswering(BertConfig(num_hidden_layers=layers, **sizes)).double().eval()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, 1.0, 0.5)
        if isinstance(module, (nn.LayerNorm, nn.Linear)):
            nn.init.normal_(module.bias, 0.0, 0.5)
    return model


def logits(model: Any, window_layers: int | None = None, tokens: int = 300) -> Tensor:
    ids = torch.randint(5, 50, (2, tokens), generator=torch.Generator().manual_seed(1))
    if window_layers is not None:
        settings = dict(scales=(16, 4, 1), budget=(3, 5), window=32, dense_below=0)
        model = vcc.wrap(model, vcc.VccConfig(window_layers=window_layers, **settings))
    vips = {} if window_layers is None else {"vip_mask": torch.arange(tokens).expand(2, tokens) < 9}
    out = model(input_ids=ids, **vips)
    return torch.stack([out.start_logits, out.end_logits])


@pytest.mark.parametrize("wanted", [3, 4, 5, 6, 11])
def test_a_grown_model_computes_what_the_model_did(wanted: int) -> None:
    """In a window and through a tree, whose means must be those of the same states."""
    model = plain()
    with torch.no_grad():
        before = logits(model), logits(model, 2)
        grow(model, 2, wanted)
        assert len(model.bert.encoder.layer) == model.config.num_hidden_layers == wanted + 1
        after = logits(model), logits(model, wanted)
    for found, expected in zip(after, before, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_every_weight_of_a_new_layer_learns_after_one_step() -> None:
    model = plain()
    below = [id(layer) for layer in model.bert.encoder.layer]
    grow(model, 2, 4)
    new = [layer for layer in model.bert.encoder.layer if id(layer) not in below]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(2):
        optimizer.zero_grad()
        logits(model, tokens=40).square().mean().backward()
        for layer in new:
            learns = {name for name, weight in layer.named_parameters() if weight.grad.norm() > 1e-9}
            assert learns >= {*OUTPUTS, *("output.dense.bias", "output.LayerNorm.weight")}
            assert step == 0 or {name for name in dict(layer.named_parameters()) if "key.bias" not in name} <= learns
        optimizer.step()
    assert len(new) == 2


def test_a_new_layer_reads_what_a_copy_of_the_one_below_would() -> None:
    """Of an input that only is normalised, its readers make what the copy's make of its norms' outputs."""
    model = plain(1)
    layer = copy.deepcopy(model.bert.encoder.layer[0])
    given = torch.randn(7, 16, dtype=torch.float64)
    kept, new = followed(model.bert.encoder.layer[0], 1)
    assert kept is model.bert.encoder.layer[0]
    normalised = nn.functional.layer_norm(given, (16,), eps=1e-12)
    for name, norm in READERS.items():
        expected = layer.get_submodule(name)(layer.get_submodule(norm)(given))
        torch.testing.assert_close(new.get_submodule(name)(normalised), expected)


@pytest.mark.parametrize(
    ("held", "wanted", "layers", "found"),
    [(3, 3, None, 4), (3, 2, None, 3), (2, 1, None, 3), (3, 2, 5, 5), (3, 6, 8, 8)],
)
def test_a_model_gets_only_the_layers_it_lacks(held: int, wanted: int, layers: int | None, found: int) -> None:
    model = plain()
    own = list(model.bert.encoder.layer)
    grow(model, held, wanted, layers)
    stack = list(model.bert.encoder.layer)
    assert len(stack) == found and [layer for layer in stack if layer in own] == own


def test_training_grows_a_model_once_and_goes_on_from_the_grown_one(prepared: Path, tmp_path: Path) -> None:  # noqa: F811
    def begun(**given: Any) -> Any:
        return train.start(TrainOptions(prepared, "twice", **given), small_model.tokenizer(), "cpu").model

    plain_one, grown = begun(), begun(window_layers=4)
    assert (window_layers_of(plain_one), plain_one.config.num_hidden_layers) == (2, 3)
    assert (window_layers_of(grown), grown.config.num_hidden_layers) == (4, 5)
    nn.init.normal_(grown.bert.encoder.layer[1].output.dense.weight)
    grown.save_pretrained(tmp_path / "grown")
    for given in ({}, {"window_layers": 4}, {"window_layers": 4, "layers": 5}):
        again = begun(model=tmp_path / "grown", **given)
        assert (window_layers_of(again), again.config.num_hidden_layers) == (4, 5)
        own = grown.state_dict()
        assert all(torch.equal(weight, own[name]) for name, weight in again.state_dict().items())
    small_model.tokenizer().save_pretrained(tmp_path / "grown")
    store(StoreOptions(tmp_path / "grown", tmp_path / "stored"))
    again = begun(model=tmp_path / "stored", window_layers=8)
    assert (window_layers_of(again), again.config.num_hidden_layers) == (8, 9)
