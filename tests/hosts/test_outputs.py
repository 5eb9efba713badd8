"""Optional outputs are honoured or refused, never silently wrong; `vcc_report` tells what each layer did."""

import pytest
import torch

import vcc
from tests.hosts.models import EVERY_HOST, ONE_EACH, ONLY_EAGER, REAL, build, difference, encoded, one, ragged, states


@pytest.mark.parametrize("family", EVERY_HOST)
def test_hidden_states_of_a_real_cut_have_the_right_shapes(family: str) -> None:
    wrapped, batch = vcc.wrap(build(family), REAL), ragged()
    with torch.no_grad():
        output = wrapped(**batch.arguments(family), output_hidden_states=True)
        plain = wrapped(**batch.arguments(family))
    assert [state.shape for state in states(output)] == [(3, 45, 32)] * 4
    assert torch.equal(states(output)[-1], encoded(output)), "the last one is after the final norm"
    assert torch.equal(encoded(output), encoded(plain)), "watching changes nothing"
    assert len({float(state.sum()) for state in states(output)}) == 4


@pytest.mark.parametrize("family", [family for family in ONE_EACH if family not in ONLY_EAGER])
def test_hidden_states_of_some_layers(family: str) -> None:
    """Hugging Face takes a list of layers: the others are None, and the embeddings are left out. Its older models take
    no list."""
    batch = ragged()
    for config in (REAL, vcc.VccConfig(**REAL.to_dict() | {"dense_below": 10_000})):
        wrapped = vcc.wrap(build(family), config)
        reader = vcc.hosts.forward.encoder.find_encoder(wrapped)
        given = {"input_ids": batch.ids, "attention_mask": batch.real, "vip_mask": batch.vips}
        with torch.no_grad():
            every = reader(**given, output_hidden_states=True).hidden_states
            some = reader(**given, output_hidden_states=[0, 2]).hidden_states
        assert [state is None for state in some] == [False, True, False]
        assert torch.equal(some[0], every[1]) and torch.equal(some[2], every[3])


@pytest.mark.parametrize("family", EVERY_HOST)
def test_attentions_are_refused_when_compressed_and_honoured_when_dense(family: str) -> None:
    batch = one()
    model = build(family, attention="eager")
    compressed, dense = vcc.wrap(model, REAL), vcc.wrap(model, vcc.VccConfig())
    if model.config.is_encoder_decoder:  # the decoder's are there
        given = compressed(**batch.arguments(family), output_attentions=True)
        assert given.encoder_attentions is None and given.decoder_attentions and given.cross_attentions
    else:
        with pytest.raises(ValueError, match=r"output_attentions=True.*vcc_report"):
            compressed(**batch.arguments(family), output_attentions=True)
    extra = {"output_attentions": True, "output_hidden_states": True}
    with torch.no_grad():
        actual = dense(**batch.arguments(family), **extra)
        expected = model(**batch.inputs(family), **extra)
    assert actual.keys() == expected.keys()
    for name in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions", "hidden_states"):
        for ours, theirs in zip(actual.get(name) or (), expected.get(name) or (), strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("family", ONE_EACH)
def test_outputs_asked_for_in_the_configuration_are_honoured(family: str) -> None:
    """An argument that is None leaves it to the configuration; one that is False does not."""
    model = build(family, attention="eager")
    model.set_attn_implementation("eager")
    model.config.output_hidden_states = True
    for module in model.modules():
        if "config" in module.__dict__:
            module.config.output_hidden_states = True
    wrapped, batch = vcc.wrap(model, REAL), one()
    with torch.no_grad():
        assert len(states(wrapped(**batch.arguments(family)))) == 4
        assert len(states(wrapped(**batch.arguments(family), output_hidden_states=None))) == 4
        assert not states(wrapped(**batch.arguments(family), output_hidden_states=False))


@pytest.mark.parametrize("family", ONE_EACH)
@pytest.mark.parametrize("dense", [False, True])
def test_tuples_hold_what_the_output_holds(family: str, dense: bool) -> None:
    config = vcc.VccConfig() if dense else REAL
    wrapped, batch = vcc.wrap(build(family), config), ragged()
    with torch.no_grad():
        output = wrapped(**batch.arguments(family), output_hidden_states=True)
        values = wrapped(**batch.arguments(family), output_hidden_states=True, return_dict=False)
    assert isinstance(values, tuple) and len(values) == len(output.to_tuple())
    assert torch.equal(values[0], output[0])
    rest = batch.arguments(family)
    unnamed = rest.pop("input_ids"), rest.pop("attention_mask")
    with torch.no_grad():
        assert torch.equal(wrapped(*unnamed, **rest)[0], output[0]), "arguments by position"


@pytest.mark.parametrize("family", ONE_EACH)
def test_the_report_tells_what_each_layer_saw_and_opened(family: str) -> None:
    wrapped, batch = vcc.wrap(build(family), REAL), one(45, vips=5)
    with torch.no_grad():
        wrapped(**batch.arguments(family))
    first, *others = wrapped.vcc_report()
    assert (first.layer, first.tokens, first.rows, first.scales, first.opened) == (0, 45, 45, (), ())
    assert first.ratio == 1.0
    for number, report in enumerate(others, start=1):
        # 40 tokens of context are 5 segments of 8: 3 are opened into 12 of 2 tokens, and 4 of these into 8 tokens.
        rows = 5 + (5 - 3) + (12 - 4) + 8
        assert (report.layer, report.tokens, report.rows, report.scales) == (number, 45, rows, (8, 2, 1))
        assert report.ratio == 45 / rows
        coarse, fine = report.opened
        assert coarse.shape == (1, 3) and fine.shape == (1, 4)
        assert bool(((coarse >= 0) & (coarse < 5)).all())
        assert {int(node) // 4 for node in fine[0]} <= {int(node) for node in coarse[0]}, "children of the opened"


def test_the_report_is_of_the_last_forward_pass() -> None:
    wrapped = vcc.wrap(build("bert"), vcc.VccConfig(**REAL.to_dict() | {"dense_below": 30}))
    assert wrapped.vcc_report() == ()
    wrapped(**one(45).arguments("bert"))
    assert len(wrapped.vcc_report()) == 3
    wrapped(**one(20).arguments("bert"))
    assert wrapped.vcc_report() == (), "this one ran dense"


def test_the_report_holds_no_gradient() -> None:
    wrapped = vcc.wrap(build("bert"), REAL)
    wrapped(**one(45).arguments("bert"))
    assert not any(opened.requires_grad for report in wrapped.vcc_report() for opened in report.opened)


@pytest.mark.parametrize("family", ONE_EACH)
def test_what_is_opened_matters(family: str) -> None:
    """More budget, less error: the report's compression is real."""
    batch = one(64)
    model = build(family)
    errors = []
    with torch.no_grad():
        expected = encoded(model(**batch.inputs(family)))
        for opened in (0, 8):
            config = vcc.VccConfig(scales=(8, 1), budget=(opened,), window_layers=0, dense_below=0)
            errors.append(difference(encoded(vcc.wrap(model, config)(**batch.arguments(family))), expected))
    assert errors[0] > 1e-3 and errors[1] < 1e-12
