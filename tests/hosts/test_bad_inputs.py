"""What cannot be right is refused, with the value and the rule."""

from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2Model, RobertaConfig

import vcc
from tests.hosts.models import ONE_EACH, REAL, build, one, ragged
from vcc.hosts.made_classes import CLASSES
from vcc.hosts.register import register_type


@pytest.mark.parametrize("dense_below", [0, 10_000])
@pytest.mark.parametrize("family", ONE_EACH)
def test_a_mask_of_the_wrong_shape_is_refused(family: str, dense_below: int) -> None:
    """Also where the input is short and the mask would not be used."""
    wrapped = vcc.wrap(build(family), vcc.VccConfig(**REAL.to_dict() | {"dense_below": dense_below}))
    batch = ragged(45)
    for wrong in (torch.ones(3, 44), torch.ones(1, 45), torch.ones(45)):
        with pytest.raises(ValueError, match=r"vip_mask has shape .*it must be \(3, 45\)"):
            wrapped(**batch.inputs(family), vip_mask=wrong)


@pytest.mark.parametrize("dense_below", [0, 10_000])
def test_a_mask_with_nan_is_refused(dense_below: int) -> None:
    wrapped = vcc.wrap(build("bert"), vcc.VccConfig(**REAL.to_dict() | {"dense_below": dense_below}))
    mask = ragged().vips.float()
    mask[0, 0] = torch.nan
    with pytest.raises(ValueError, match="vip_mask contains NaN"):
        wrapped(**ragged().inputs("bert"), vip_mask=mask)


def test_an_attention_mask_of_the_wrong_shape_is_refused() -> None:
    wrapped = vcc.wrap(build("bert"), REAL)
    with pytest.raises(ValueError, match=r"attention_mask has shape \(3, 1, 45, 45\)"):
        wrapped(input_ids=ragged().ids, attention_mask=torch.ones(3, 1, 45, 45), vip_mask=ragged().vips)


@pytest.mark.parametrize("family", ONE_EACH)
def test_mask_and_length_together_are_refused(family: str) -> None:
    with pytest.raises(ValueError, match="vip_mask and vip_length are both given"):
        vcc.wrap(build(family), REAL)(**ragged().arguments(family), vip_length=3)


def test_neither_ids_nor_embeddings_is_hugging_faces_own_error() -> None:
    wrapped = vcc.wrap(build("bert"), REAL)
    with pytest.raises(ValueError, match="input_ids or inputs_embeds"):
        wrapped(vip_mask=ragged().vips)
    with pytest.raises(ValueError, match="input_ids or inputs_embeds"):
        wrapped(input_ids=one().ids, inputs_embeds=torch.zeros(1, 45, 32, dtype=torch.float64))


def test_a_model_of_an_unknown_family_is_refused() -> None:
    gpt = GPT2Model(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=20, n_positions=8))
    with pytest.raises(TypeError, match=r"cannot wrap GPT2Model; .*BertModel.*T5ForConditionalGeneration"):
        vcc.wrap(gpt, REAL)


@pytest.mark.parametrize("family", ONE_EACH)
def test_more_window_layers_than_layers_are_refused(family: str) -> None:
    with pytest.raises(ValueError, match="window_layers=4: this model has only 3 layers"):
        vcc.wrap(build(family), vcc.VccConfig(window_layers=4))


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        ({"scale": [16, 1]}, r"unknown VCC settings \['scale'\]; the settings are .*'scales'"),
        ({"scales": [16, 3]}, "scales"),
        ({"window": "512"}, "window='512'"),
        ({"budget": [1, 2]}, "budget"),
    ],
)
def test_a_stored_configuration_is_checked(stored: dict[str, Any], problem: str) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = RobertaConfig(vocab_size=20, vcc=stored, **sizes)
    register_type("roberta")
    with pytest.raises(ValueError, match=problem):
        CLASSES[type(build("roberta"))](config)


def test_a_failed_wrap_leaves_the_model_as_it_is() -> None:
    model = build("bert")
    before = model.config.to_dict()
    with pytest.raises(ValueError, match="window_layers"):
        vcc.wrap(model, vcc.VccConfig(window_layers=9))
    assert model.config.to_dict() == before and type(model) in CLASSES
