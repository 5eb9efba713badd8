"""The paper's layout: the first layers on separate windows, the rest on the compressed sequence."""

from typing import Any

import pytest
import torch
from torch import Tensor

import vcc
from tests.hosts.models import (
    AFTER_PADDING,
    EVERY_HOST,
    ONE_EACH,
    WITH_TABLE,
    Batch,
    build,
    difference,
    one,
    ragged,
    states,
)

WINDOW = 12


def windows(**changes: Any) -> vcc.VccConfig:
    settings = {"scales": (8, 2, 1), "budget": (2, 3), "window": WINDOW, "window_layers": 2, "dense_below": 0}
    return vcc.VccConfig(**settings | changes)


def after_windows(family: str, batch: Batch, config: vcc.VccConfig, layer: int = 2) -> Tensor:
    """What layer `layer` hands on, (B, n, D)."""
    wrapped = vcc.wrap(build(family), config)
    with torch.no_grad():
        return states(wrapped(**batch.arguments(family), output_hidden_states=True))[layer]


@pytest.mark.parametrize("family", EVERY_HOST)
@pytest.mark.parametrize("n", [3 * WINDOW + 5, WINDOW, 1])
def test_window_layers_are_the_untouched_layers_on_slices(family: str, n: int) -> None:
    """The last window may be short. Each slice is given its positions, where the family has a table of them."""
    batch = one(n, vips=1)
    actual = after_windows(family, batch, windows())
    model = build(family)
    for start in range(0, n, WINDOW):
        part = slice(start, start + WINDOW)
        expected = untouched_slice(family, model, batch.ids[:, part], start)
        assert difference(actual[:, part], expected) < 1e-12


def untouched_slice(family: str, model: Any, ids: Tensor, start: int) -> Tensor:
    """The untouched model's states after two layers, for tokens that begin at place `start`."""
    places = torch.arange(start, start + ids.shape[1])[None]
    if family in ("bart", "pegasus"):
        # These take no position ids: the difference between two rows of the table goes into the embeddings.
        table = model.encoder.embed_positions
        first = 2 if family == "bart" else 0
        moved = table.weight[places + first] - table.weight[places - start + first]
        scale = 1.0 if family == "bart" else model.encoder.embed_scale
        embeds = model.get_input_embeddings()(ids) * scale + moved
        return model.encoder(inputs_embeds=embeds, output_hidden_states=True).hidden_states[2].detach()
    reader = model.encoder if "t5" in family else model
    extra = {}
    if family in WITH_TABLE:
        first = model.embeddings.padding_idx + 1 if family in AFTER_PADDING else 0
        extra["position_ids"] = places + first
    return reader(input_ids=ids, output_hidden_states=True, **extra).hidden_states[2].detach()


@pytest.mark.parametrize("family", ["roberta", "t5", "modernbert"])
def test_a_third_of_the_layers_run_on_windows_by_default(family: str) -> None:
    """Of the 3 layers, 1."""
    wrapped = vcc.wrap(build(family), windows(window_layers=None))
    wrapped(**ragged().arguments(family))
    assert wrapped.vcc.window_layers == 1
    assert [report.scales for report in wrapped.vcc_report()] == [(), (8, 2, 1), (8, 2, 1)]


@pytest.mark.parametrize("family", EVERY_HOST)
def test_windows_do_not_see_each_other(family: str) -> None:
    batch = one(3 * WINDOW, vips=1)
    other = Batch(batch.ids.clone(), batch.real, batch.vips)
    other.ids[:, WINDOW : 2 * WINDOW] = 7
    before, after = (after_windows(family, each, windows()) for each in (batch, other))
    middle = slice(WINDOW, 2 * WINDOW)
    assert not torch.equal(before[:, middle], after[:, middle])
    for part in (slice(0, WINDOW), slice(2 * WINDOW, 3 * WINDOW)):
        assert torch.equal(before[:, part], after[:, part])


@pytest.mark.parametrize("family", ONE_EACH)
@pytest.mark.parametrize(("before", "after"), [(5, 5), (5, 9), (1, 16)])
def test_with_windows_of_their_own_the_document_does_not_see_the_question(family: str, before: int, after: int) -> None:
    """The same document behind a question of other words and of another length: equal to the last bit."""
    document = one(40, vips=0, seed=3).ids

    def states_of_document(question: int, seed: int) -> Tensor:
        ids = torch.cat([one(question, seed=seed).ids, document], 1)
        batch = Batch(ids, torch.ones_like(ids), (torch.arange(ids.shape[1]) < question).long()[None])
        return after_windows(family, batch, windows(vip_window="own"))[:, question:]

    assert torch.equal(states_of_document(before, seed=1), states_of_document(after, seed=2))


@pytest.mark.parametrize("family", ONE_EACH)
def test_with_windows_of_their_own_vips_and_document_are_read_as_two_inputs(family: str) -> None:
    """VIPs may stand anywhere; what is left closes ranks."""
    batch = one(40, seed=3)
    batch = Batch(batch.ids, batch.real, torch.zeros_like(batch.ids))
    batch.vips[0, [3, 17, 18, 30]] = 1
    actual = after_windows(family, batch, windows(vip_window="own"))
    for chosen in (batch.vips[0] == 1, batch.vips[0] == 0):
        ids = batch.ids[:, chosen]
        alone = Batch(ids, torch.ones_like(ids), torch.zeros_like(ids))
        assert difference(actual[:, chosen], after_windows(family, alone, windows())) < 1e-12


@pytest.mark.parametrize("family", ONE_EACH)
def test_inline_windows_mix_question_and_document(family: str) -> None:
    batch = one(40)
    other = Batch(batch.ids.clone(), batch.real, batch.vips)
    other.ids[:, :4] = 9
    before, after = (after_windows(family, each, windows())[:, 4:] for each in (batch, other))
    assert not torch.equal(before, after)


@pytest.mark.parametrize("family", ONE_EACH)
@pytest.mark.parametrize("vip_window", ["inline", "own"])
def test_all_layers_may_run_on_windows_and_none(family: str, vip_window: Any) -> None:
    for layers in (0, 3):
        wrapped = vcc.wrap(build(family), windows(window_layers=layers, vip_window=vip_window))
        with torch.no_grad():
            output = wrapped(**ragged().arguments(family))
        assert bool(output[0].isfinite().all())
        assert [report.scales == () for report in wrapped.vcc_report()] == [layers == 3] * 3
