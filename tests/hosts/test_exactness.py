"""With every node open and no window layers, a wrapped model is the untouched one: every family, every head."""

import pytest
import torch

import vcc
from tests.hosts.models import (
    EAGER_ROUNDS,
    EVERY_HEAD,
    FAMILIES,
    OPEN,
    READS_PADDING,
    Batch,
    build,
    difference,
    encoded,
    ragged,
    states,
)


def compare(family: str, head: str, batch: Batch, dtype: torch.dtype, attention: str = "sdpa") -> float:
    model = build(family, head, dtype, attention)
    wrapped = vcc.wrap(model, OPEN)
    with torch.no_grad():
        expected = model(**batch.inputs(family, head))
        actual = wrapped(**batch.arguments(family, head))
    assert len(wrapped.vcc_report()) == 3, "the compressed path has to be the one that ran"
    return difference(actual, expected, batch.real)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("family", FAMILIES)
def test_open_cut_equals_untouched_model(family: str, dtype: torch.dtype, tolerance: float, attention: str) -> None:
    """The batch is ragged, with padding on the left and on the right."""
    batch = ragged()
    if family in EAGER_ROUNDS and attention == "eager":
        tolerance = max(tolerance, 1e-6)
        if family == "modernbert" and dtype == torch.float64:
            batch = batch.row(2)  # with padding, Hugging Face's is NaN
    assert compare(family, "AutoModel", batch, dtype, attention) < tolerance


@pytest.mark.parametrize(("family", "head"), EVERY_HEAD)
def test_open_cut_equals_untouched_model_for_every_head(family: str, head: str) -> None:
    batch = ragged()
    if family in READS_PADDING and head in ("AutoModelForSequenceClassification", "AutoModelForMultipleChoice"):
        batch = batch.row(0)
    assert compare(family, head, batch, torch.float64) < 1e-12


@pytest.mark.parametrize("family", FAMILIES)
def test_open_cut_equals_untouched_model_from_input_embeddings(family: str) -> None:
    model, batch = build(family), ragged()
    wrapped = vcc.wrap(model, OPEN)
    arguments = batch.arguments(family)
    arguments["inputs_embeds"] = model.get_input_embeddings()(arguments.pop("input_ids")).detach()
    vip_mask = arguments.pop("vip_mask")
    with torch.no_grad():
        expected = model(**arguments)
        actual = wrapped(**arguments, vip_mask=vip_mask)
    assert difference(actual, expected, batch.real) < 1e-12
    assert len(wrapped.vcc_report()) == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_open_cut_has_the_untouched_hidden_states(family: str) -> None:
    model, batch = build(family), ragged()
    wrapped = vcc.wrap(model, OPEN)
    with torch.no_grad():
        expected = model(**batch.inputs(family), output_hidden_states=True)
        actual = wrapped(**batch.arguments(family), output_hidden_states=True)
    assert len(states(actual)) == len(states(expected)) == 4
    for ours, theirs in zip(states(actual), states(expected), strict=True):
        assert difference(ours, theirs, batch.real) < 1e-12
    assert torch.equal(states(actual)[-1], encoded(actual)) == torch.equal(states(expected)[-1], encoded(expected))


@pytest.mark.parametrize("family", ["bert", "roberta", "bart"])
@pytest.mark.parametrize("token_types", [True, False])
def test_token_types_and_positions_are_honoured(family: str, token_types: bool) -> None:
    model, batch = build(family), ragged()
    wrapped = vcc.wrap(model, OPEN)
    extra = {}
    if family != "bart":
        extra["position_ids"] = torch.arange(44, -1, -1).expand(3, 45) + 2
        if token_types:
            extra["token_type_ids"] = (torch.arange(45) % 2).expand(3, 45)
    with torch.no_grad():
        expected = model(**batch.inputs(family), **extra)
        actual = wrapped(**batch.arguments(family), **extra)
    assert difference(actual, expected, batch.real) < 1e-12
