"""Inputs too short to gain run through the untouched model, to the last bit."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import vcc
from tests.hosts.models import EVERY_HOST, ONE_EACH, REAL, SOME_HEADS, WITH_TABLE, build, difference, one, ragged
from vcc.hosts.forward.break_even import CPU, RULES, Rule, rows_seen, worth_compressing


@pytest.mark.parametrize("dense_below", ["auto", 46])
@pytest.mark.parametrize(("family", "head"), SOME_HEADS)
def test_short_inputs_are_the_untouched_models_to_the_last_bit(family: str, head: str, dense_below: Any) -> None:
    model, batch = build(family, head), ragged(45)
    wrapped = vcc.wrap(model, vcc.VccConfig(dense_below=dense_below))
    with torch.no_grad():
        expected = model(**batch.inputs(family, head))
        assert difference(wrapped(**batch.arguments(family, head)), expected) == 0
        assert difference(wrapped(**batch.inputs(family, head)), expected) == 0, "VIPs are not asked for"
    assert wrapped.vcc_report() == ()


@pytest.mark.parametrize("family", EVERY_HOST)
def test_dense_below_is_a_number_of_tokens(family: str) -> None:
    for dense_below, compressed in ((45, True), (46, False), (0, True)):
        wrapped = vcc.wrap(build(family), replace(REAL, dense_below=dense_below))
        with torch.no_grad():
            wrapped(**one(45).arguments(family))
        assert bool(wrapped.vcc_report()) == compressed


@pytest.mark.parametrize("family", ["roberta", "t5"])
def test_training_a_short_input_is_training_the_untouched_model(family: str) -> None:
    found = []
    for wrapping in (False, True):
        model = build(family)
        run = vcc.wrap(model, vcc.VccConfig()) if wrapping else model
        run(**ragged().inputs(family))[0].square().sum().backward()
        found.append([p.grad for p in model.parameters()])
    for ours, theirs in zip(*found, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


@pytest.mark.parametrize("family", ONE_EACH)
def test_auto_compresses_where_it_gains(family: str) -> None:
    config = replace(REAL, dense_below="auto")
    wrapped = vcc.wrap(build(family), config)
    for n in range(1, 80, 6):
        with torch.no_grad():
            wrapped(**one(n, vips=1).arguments(family))
        assert bool(wrapped.vcc_report()) == worth_compressing(n, config)
    if family in WITH_TABLE:
        with torch.no_grad():
            wrapped(**one(100, vips=1).arguments(family))
        assert wrapped.vcc_report(), "longer than the table: nothing else could read it"


def test_rows_seen_counts_the_cut() -> None:
    """Against the cut itself, for many lengths."""
    for config in (vcc.VccConfig(), vcc.VccConfig(scales=(256, 16, 1), budget=(40, 90)), REAL):
        for n in (1, 15, 16, 17, 100, 1000, 4096, 20_000):
            rows = vcc.Rows(torch.zeros(1, n, 1), torch.ones(1, n), torch.arange(n).float()[None])
            tree = vcc.build_tree(rows, config.scales)
            cut = vcc.choose_cut(tree, lambda nodes: nodes.positions, config.budget)
            assert rows_seen(n, config) == sum(kept.shape[1] for kept in cut.kept)


def test_the_break_even_depends_on_length_and_budget() -> None:
    paper = vcc.VccConfig()
    gains = [n for n in range(512, 65_536, 64) if worth_compressing(n, paper)]
    assert gains == list(range(gains[0], 65_536, 64)), "once it gains, it gains for good"
    assert all(rows_seen(n, paper) < CPU.saving * n for n in gains)
    assert not worth_compressing(512, vcc.VccConfig(budget=(0,))), "one window is not worth a tree"
    assert not worth_compressing(2048, vcc.VccConfig(budget=(10_000,))), "everything is opened"


def test_what_pays_is_looked_up_by_device_and_by_whether_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, ("cpu", True), Rule(saving=0.8, windows=64))
    wrapped, n = vcc.wrap(build("modernbert", max_position_embeddings=2000), vcc.VccConfig(budget=(5,), window=32)), 300
    with torch.no_grad():
        wrapped(**one(n).arguments("modernbert"))
        assert wrapped.vcc_report()
        vcc.compile(wrapped)(**one(n).arguments("modernbert"))
    assert not vcc.compile_seconds(wrapped), "compiled, it would be worth it from 64 windows on: it ran dense"
