"""BERT's matrix products in 8 bits: near the plain host, the same in every batch, and only where asked for."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForQuestionAnswering

import vcc
from vcc.core.rows import Rows
from vcc.errors import UsageError
from vcc.hosts import eight_bits
from vcc.hosts.eight_bits import (
    MIDDLE,
    NEAR_BOTTOM,
    EightBitHost,
    eight_bit_host,
    rounded,
    wanted_precision,
)
from vcc.hosts.forward.encoder import find_encoder
from vcc.testing import random_rows


def host_of(**settings: Any) -> Any:
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        vocab_size=50,
        initializer_range=0.3,
        **settings,
    )
    return find_encoder(vcc.wrap(BertForQuestionAnswering(config).eval(), vcc.VccConfig())).host


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Any, EightBitHost]]:
    plain = host_of()
    fast = eight_bit_host(plain, "int8")
    if fast is None:
        pytest.skip("this machine has no kernels for 8 bits")
    with torch.inference_mode():
        yield plain, fast


def tokens(lengths: list[int], n: int) -> Rows:
    """Rows of single tokens, padded at their end."""
    places = torch.arange(n).expand(len(lengths), n)
    real = places < torch.tensor(lengths)[:, None]
    return Rows(random_rows(len(lengths), n, 64).hidden.float(), real.float(), places.float())


def near(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool((found - expected).norm() < 0.06 * expected.norm())


def test_rounding_is_off_by_at_most_half_a_step_and_keeps_zero() -> None:
    gelu = torch.nn.functional.gelu(3 * torch.randn(50, 8))
    several = torch.randn(50, 8), gelu, torch.rand(50, 8) + 3, torch.rand(50, 8) - 3, torch.zeros(4, 8)
    for zero, given in itertools.product((MIDDLE, NEAR_BOTTOM), several):
        given[0, 0] = 0.0
        values, steps = rounded(given, zero)
        back = (values.float() - zero) * steps
        assert (back - given).abs().le(steps * 0.51 + 1e-6).all()
        assert back[0, 0] == 0.0 and values.dtype == torch.uint8


def test_a_token_with_large_features_does_not_coarsen_the_others() -> None:
    given = torch.randn(20, 8)
    alone = rounded(given, MIDDLE).values
    given[3] *= 1000
    assert torch.equal(rounded(given, MIDDLE).values[:3], alone[:3])
    assert torch.equal(rounded(given, MIDDLE).values[4:], alone[4:])


def test_a_layer_is_near_the_plain_one(hosts: tuple[Any, EightBitHost]) -> None:
    plain, fast = hosts
    for rows in (tokens([24, 24], 24), tokens([24, 9], 24)):
        real = rows.counts > 0
        found, expected = (host.layer(1, rows, consecutive=True)[real] for host in hosts)
        assert near(found, expected) and not torch.equal(found, expected)
    counts = torch.tensor([[1.0, 16.0, 0.0, 4.0] * 6] * 2)  # a cut, with padding among its nodes
    cut = replace(tokens([24, 24], 24), counts=counts)
    found, expected = (host.layer(0, cut)[counts > 0] for host in hosts)
    assert near(found, expected)
    assert not near(fast.layer(0, replace(cut, counts=counts.clamp(max=1)))[counts > 0], expected), "counts matter"


def test_a_text_gives_the_same_numbers_alone_and_in_a_batch(hosts: tuple[Any, EightBitHost]) -> None:
    _, fast = hosts
    rows = tokens([24, 9, 17], 24)
    rows.hidden[0] *= 50  # a batch with one range would round the others away
    together = fast.layer(0, rows, consecutive=True)
    for i, n in ((1, 9), (2, 17)):
        alone = Rows(rows.hidden[i : i + 1, :n], rows.counts[i : i + 1, :n], rows.positions[i : i + 1, :n])
        torch.testing.assert_close(together[i : i + 1, :n], fast.layer(0, alone, consecutive=True))


def test_scores_and_gradients_are_those_of_the_plain_host(hosts: tuple[Any, EightBitHost]) -> None:
    plain, fast = hosts
    vips, nodes = tokens([4], 4), tokens([24], 24)
    assert torch.equal(fast.score(1, vips, nodes), plain.score(1, vips, nodes))
    with torch.inference_mode(False), torch.enable_grad():
        rows = tokens([12], 12)
        assert torch.equal(fast.layer(0, rows), plain.layer(0, rows))


def test_only_a_plain_bert_on_a_processor_with_the_instructions_gets_eight_bits(monkeypatch: Any) -> None:
    assert eight_bit_host(host_of(), "float32") is None
    assert eight_bit_host(host_of(hidden_act="relu"), "int8") is None
    half = host_of()
    half.model.half()
    assert eight_bit_host(half, "int8") is None
    monkeypatch.setattr(eight_bits, "fast_here", lambda: False)
    assert eight_bit_host(host_of(), "auto") is None
    monkeypatch.setattr(eight_bits, "fast_here", lambda: True)
    monkeypatch.setattr(eight_bits.EightBitLinear, "__call__", lambda *given: torch.zeros(8, 64))
    assert eight_bit_host(host_of(), "auto") is None, "kernels that give something else are not used"


def test_the_setting_is_checked(monkeypatch: Any) -> None:
    monkeypatch.delenv("VCC_PRECISION", raising=False)
    assert wanted_precision() == "auto"
    monkeypatch.setenv("VCC_PRECISION", "float32")
    assert wanted_precision() == "float32"
    monkeypatch.setenv("VCC_PRECISION", "int4")
    with pytest.raises(UsageError, match="int4"):
        wanted_precision()
