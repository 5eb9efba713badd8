"""Appendix A.5: a decoder whose prefix is in a tree, against the plain model."""

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from reproduction.small.prefix import PrefixHost, suffix_states
from vcc.config import VccConfig
from vcc.errors import UsageError


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    made = LlamaForCausalLM(config).double().eval()
    for weight in made.parameters():
        weight.data.mul_(4)  # attention that is not flat
    return made


def tokens(n: int) -> Tensor:
    return torch.randint(50, (2, n), generator=torch.Generator().manual_seed(1))


OPEN = [
    VccConfig((4, 1), (99,), window_layers=0),
    VccConfig((8, 2, 1), (99, 99), window_layers=0),
    VccConfig((4, 1), (99,), window=64, window_layers=2),
    VccConfig((4, 1), (99,), window=64, window_layers=2, vip_window="every"),
]


@pytest.mark.parametrize("config", OPEN)
def test_with_every_node_open_it_is_the_plain_model(model: LlamaForCausalLM, config: VccConfig) -> None:
    ids = tokens(61)
    with torch.no_grad():
        expected = model.model(ids, use_cache=False).last_hidden_state[:, -9:]
        actual = suffix_states(PrefixHost.of(model), ids, 9, config)
        again = model.model(ids, use_cache=False).last_hidden_state[:, -9:]
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)  # Llama rotates in float32
    assert torch.equal(again, expected)  # the model itself has not changed


def test_closed_nodes_change_the_result_and_all_weights_learn(model: LlamaForCausalLM) -> None:
    ids, host = tokens(61), PrefixHost.of(model)
    expected = model.model(ids, use_cache=False).last_hidden_state[:, -9:]
    closed = suffix_states(host, ids, 9, VccConfig((4, 1), (2,), window_layers=1, window=16))
    assert float((closed - expected).detach().abs().max()) > 1e-3
    model.zero_grad()
    model.lm_head(closed).square().mean().backward()
    assert all(float(weight.grad.abs().max()) > 0 for weight in model.parameters() if weight.grad is not None)
    assert sum(weight.grad is None for weight in model.parameters()) == 0


@pytest.mark.parametrize("settings", [{}, {"vip_window": "every"}])
def test_no_token_sees_what_is_behind_it(model: LlamaForCausalLM, settings: dict[str, str]) -> None:
    """Another token at one place of the suffix changes the states there and later, not those before it."""
    host, ids = PrefixHost.of(model), tokens(61)
    config = VccConfig((4, 1), (3,), window=16, window_layers=1, **settings)  # type: ignore[arg-type]
    with torch.no_grad():
        before = suffix_states(host, ids, 9, config)
        for place in (3, 8):
            other = ids.clone()
            other[:, -9 + place] = (other[:, -9 + place] + 1) % 50
            after = suffix_states(host, other, 9, config)
            assert torch.equal(after[:, :place], before[:, :place])
            assert bool((after[:, place:] != before[:, place:]).any(2).all())


def test_a_suffix_needs_a_prefix(model: LlamaForCausalLM) -> None:
    with pytest.raises(UsageError, match="a suffix of 61 of 61 tokens"):
        suffix_states(PrefixHost.of(model), tokens(61), 61, OPEN[0])
