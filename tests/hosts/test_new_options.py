"""Options that the paper does not have, in real models: exact where everything is seen, and the same compiled."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import vcc
from tests.hosts.models import EVERY_HOST, OPEN, REAL, Batch, build, difference, encoded, ragged
from vcc.hosts.compiled.compile import CompiledGraphs
from vcc.hosts.forward.wrapped import state_of

SLOW = pytest.mark.slow
OPTIONS: dict[str, dict[str, Any]] = {
    "every": {"vip_window": "every"},
    "mean_norm": {"mean_norm": True},
    "mass": {"scales": (8, 1), "budget": (4,), "mass": 0.6},
    "gate_closed": {"gate_closed": True},
    "reach": {"reach": 9},
    "all": {
        "scales": (8, 1), "budget": (4,), "mass": 0.6, "mean_norm": True, "vip_window": "every", "gate_closed": True,
        "reach": 9,
    },
}  # fmt: skip


@pytest.mark.parametrize("family", EVERY_HOST)
def test_vips_in_windows_that_hold_everything_are_the_untouched_model(family: str) -> None:
    model, batch = build(family), ragged()
    wrapped = vcc.wrap(model, replace(OPEN, window_layers=3, window=128, vip_window="every"))
    with torch.no_grad():
        expected, actual = model(**batch.inputs(family)), wrapped(**batch.arguments(family))
    assert len(wrapped.vcc_report()) == 3
    assert difference(encoded(actual), encoded(expected), batch.real) < 1e-12


@pytest.mark.parametrize("family", ["bert", "roberta-prelayernorm"])
@pytest.mark.parametrize("layers", [1, 2])
def test_vips_in_every_window_are_a_mask_of_the_untouched_model(family: str, layers: int) -> None:
    """Hugging Face's model, layer by layer, with a mask of who sees whom; then everything is open."""
    model, batch = build(family), ragged()
    wrapped = vcc.wrap(model, replace(OPEN, window_layers=layers, window=6, vip_window="every"))
    with torch.no_grad():
        actual = encoded(wrapped(**batch.arguments(family)))
        vip, real = (batch.vips * batch.real).bool(), batch.real.bool()
        place = torch.arange(real.shape[1])
        near = (place[:, None] - place).abs() <= 3
        windows = (vip[:, :, None] | vip[:, None] | near) & real[:, None]
        hidden = wrapped.host.embed(batch.inputs(family), None)
        for index, layer in enumerate(model.encoder.layer):
            sees = windows if index < layers else real[:, None].expand_as(windows)
            sees = sees | ~sees.any(2, keepdim=True)  # padding sees anything, so that no softmax is empty
            bias = torch.zeros(sees.shape, dtype=hidden.dtype).masked_fill(~sees, -torch.inf)[:, None]
            found = layer(hidden, attention_mask=bias)
            hidden = found if isinstance(found, torch.Tensor) else found[0]
        expected = model.LayerNorm(hidden) if family == "roberta-prelayernorm" else hidden
    assert difference(actual, expected, batch.real) < 1e-12


@pytest.mark.parametrize("family", ["bert", "minilm", "roberta", "albert", "distilbert"])
def test_means_at_a_tokens_norm_leave_an_open_model_exact(family: str) -> None:
    model, batch = build(family), ragged()
    wrapped = vcc.wrap(model, replace(OPEN, mean_norm=True))
    with torch.no_grad():
        expected, actual = model(**batch.inputs(family)), wrapped(**batch.arguments(family))
    assert difference(encoded(actual), encoded(expected), batch.real) < 1e-12


@pytest.mark.parametrize("family", EVERY_HOST)
def test_a_reach_over_everything_leaves_an_open_model_exact(family: str) -> None:
    model, batch = build(family), ragged()
    wrapped = vcc.wrap(model, replace(OPEN, reach=batch.real.shape[1]))
    with torch.no_grad():
        expected, actual = model(**batch.inputs(family)), wrapped(**batch.arguments(family))
    assert difference(encoded(actual), encoded(expected), batch.real) < 1e-12


@pytest.mark.parametrize("family", ["bert", "roberta-prelayernorm"])
def test_a_reach_is_a_mask_of_the_untouched_model(family: str) -> None:
    """Hugging Face's model with a mask of who sees whom."""
    model, batch = build(family), ragged()
    wrapped = vcc.wrap(model, replace(OPEN, reach=5))
    with torch.no_grad():
        actual = encoded(wrapped(**batch.arguments(family)))
        vip, real = (batch.vips * batch.real).bool(), batch.real.bool()
        place = torch.arange(real.shape[1])
        near = (place[:, None] - place).abs() <= 5
        sees = (vip[:, :, None] | vip[:, None] | near) & real[:, None]
        sees = sees | ~sees.any(2, keepdim=True)  # padding sees anything, so that no softmax is empty
        bias = torch.zeros(sees.shape, dtype=actual.dtype).masked_fill(~sees, -torch.inf)[:, None]
        hidden = wrapped.host.embed(batch.inputs(family), None)
        for layer in model.encoder.layer:
            found = layer(hidden, attention_mask=bias)
            hidden = found if isinstance(found, torch.Tensor) else found[0]
        expected = model.LayerNorm(hidden) if family == "roberta-prelayernorm" else hidden
    assert difference(actual, expected, batch.real) < 1e-12


def compiled(model: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """In pieces, without the compiler's code for a CPU: what is compiled is traced and run as it is."""
    from vcc.hosts.compiled import compile as module
    from vcc.hosts.compiled.pieces import CompiledPieces

    torch._dynamo.reset()
    monkeypatch.setattr(module, "CompiledPieces", lambda **_: CompiledPieces("aot_eager"))
    state_of(model).graphs = CompiledGraphs(whole=False)
    return model


@pytest.mark.parametrize("option", [name if name == "all" else pytest.param(name, marks=SLOW) for name in OPTIONS])
@pytest.mark.parametrize("learning", [pytest.param(False, marks=SLOW), True])
def test_compiled_gives_the_same_values_and_gradients(
    option: str, learning: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, found = ragged(), []
    for compiling in (False, True):
        wrapped = vcc.wrap(build("bert"), replace(REAL, **OPTIONS[option]))
        model = compiled(wrapped, monkeypatch) if compiling else wrapped
        with torch.set_grad_enabled(learning):
            hidden = encoded(model(**batch.arguments("bert")))
            if learning:
                hidden[batch.real.bool()].square().mean().backward()
        gradients = [one.grad for one in model.parameters() if one.grad is not None]
        found.append((hidden.detach(), gradients))
    (expected, gradients), (actual, same) = found
    assert difference(actual, expected, batch.real) < 1e-10
    assert len(gradients) == len(same) and bool(gradients) == learning
    for one, other in zip(gradients, same, strict=True):
        assert float((one - other).abs().max()) <= 1e-9 * max(float(one.abs().max()), 1e-3)


@SLOW
def test_another_budget_is_another_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = ragged()
    wrapped = vcc.wrap(build("bert"), REAL)
    model, state = compiled(wrapped, monkeypatch), state_of(wrapped)
    with torch.no_grad():
        for budget in ((3, 4), (5, 2), (99, 999), (3, 4)):
            state.settings = replace(REAL, budget=budget)
            expected = encoded(vcc.wrap(build("bert"), state.settings)(**batch.arguments("bert")))
            assert difference(encoded(model(**batch.arguments("bert"))), expected, batch.real) < 1e-10
    assert len(state.graphs.graphs) == 3  # type: ignore[union-attr]


def test_the_options_are_saved_with_the_model(tmp_path: Path) -> None:
    wrapped, batch = vcc.wrap(build("bert"), replace(REAL, **OPTIONS["all"])), ragged()
    wrapped.save_pretrained(tmp_path)
    again = transformers.AutoModel.from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert again.vcc == wrapped.vcc and again.vcc.mean_norm and again.vcc.mass == 0.6
    with torch.no_grad():
        expected, actual = (encoded(model(**batch.arguments("bert"))) for model in (wrapped, again))
    assert torch.equal(actual, expected)


def test_reports_name_what_was_opened_with_a_budget_by_mass() -> None:
    batch: Batch = ragged()
    wrapped = vcc.wrap(build("bert"), replace(REAL, scales=(8, 1), budget=(4,), mass=0.6))
    with torch.no_grad():
        wrapped(**batch.arguments("bert"))
    opened = [report.opened[0] for report in wrapped.vcc_report()[1:]]
    assert all(((nodes >= -1) & (nodes < 6)).all() and (nodes >= 0).any(1).all() for nodes in opened)
