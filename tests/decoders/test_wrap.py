"""`vcc.wrap` and `vcc.unwrap` of causal language models; saving and loading them; what is refused."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
)

import vcc
from tests.decoders.models import CLOSED, CONFIGS, SIZES, SMALL, ids, tiny
from vcc.errors import ModelError, UsageError


@pytest.mark.parametrize("family", CONFIGS)
def test_a_saved_model_comes_back_wrapped(family: str, tmp_path: Path) -> None:
    wrapped = vcc.wrap(tiny(family), CLOSED)
    wrapped.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    assert type(loaded) is type(wrapped)
    assert loaded.vcc == CLOSED
    text = ids(1, 60)
    settings: dict[str, Any] = {"max_new_tokens": 15, "do_sample": False}
    assert torch.equal(loaded.generate(text, **settings), wrapped.generate(text, **settings))


def test_unwrapping_gives_the_same_weights_and_settings_back() -> None:
    model = tiny()
    before = copy.deepcopy(model.config.to_dict())
    plain = vcc.unwrap(vcc.wrap(model, CLOSED))
    assert type(plain) is type(model) and type(plain.config) is type(model.config)
    assert plain.config.to_dict() == before == model.config.to_dict()
    assert plain.config._attn_implementation == model.config._attn_implementation == "sdpa"
    for (name, weight), (_, other) in zip(plain.state_dict().items(), model.state_dict().items(), strict=True):
        assert weight.data_ptr() == other.data_ptr(), name


def test_wrapping_again_changes_the_settings() -> None:
    again = vcc.wrap(vcc.wrap(tiny(), CLOSED), vcc.DecoderConfig(mass=0.9))
    assert again.vcc.mass == 0.9 and again.vcc.budget is None


def test_another_attention_still_knows_trees() -> None:
    wrapped, text = vcc.wrap(tiny(), CLOSED), ids(1, 60)
    settings: dict[str, Any] = {"max_new_tokens": 15, "do_sample": False}
    expected = wrapped.generate(text, **settings)
    wrapped.set_attn_implementation("eager")
    assert wrapped.config._attn_implementation == "vcc_eager"
    assert torch.equal(wrapped.generate(text, **settings), expected)


def test_training_is_the_untouched_models() -> None:
    model, text = tiny(), ids(2, 40)
    wrapped = vcc.wrap(copy.deepcopy(model), CLOSED)
    losses = [each.train()(text, labels=text).loss for each in (model, wrapped)]
    assert torch.equal(*losses)
    for loss in losses:
        loss.backward()
    for mine, theirs in zip(wrapped.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-12)


def test_what_cannot_be_wrapped_is_refused_in_words() -> None:
    small = {key: value for key, value in SIZES.items() if key != "head_dim"}
    latent = DeepseekV3ForCausalLM(
        DeepseekV3Config(
            **small | {"num_key_value_heads": 4}, kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=4,
            v_head_dim=8, n_routed_experts=4, n_group=1, topk_group=1, num_experts_per_tok=1, first_k_dense_replace=3,
        )
    )  # fmt: skip
    with pytest.raises(ModelError, match="latent"):
        vcc.wrap(latent, CLOSED)
    with pytest.raises(ModelError, match="LlamaForCausalLM"):
        vcc.wrap(GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2)), CLOSED)
    with pytest.raises(ModelError, match="sliding window of 16"):
        vcc.wrap(AutoModelForCausalLM.from_config(MistralConfig(**SIZES, sliding_window=16)), CLOSED)
    with pytest.raises(UsageError, match="DecoderConfig"):
        vcc.wrap(tiny(), vcc.VccConfig())
    bert = BertModel(BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8))
    with pytest.raises(ModelError, match="BertModel"):
        vcc.wrap(bert, CLOSED)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"budget": 4, "mass": 0.9}, "one of the two"),
        ({"mass": 1.5}, "share of the attention"),
        ({"budget": (4, 4)}, "one for each scale"),
        ({"budget": -1}, "non-negative"),
        ({"scales": (1,)}, "at least two"),
        ({"scales": (16, 3, 1)}, "multiple of the next"),
        ({"piece": 1000}, "multiple of the coarsest scale"),
        ({"fresh": 0}, "multiple of the coarsest scale"),
        ({"local": -1}, "at least 0"),
        ({"order": "random"}, '"key" or "position"'),
        ({"prefill": "none"}, '"exact" or "blocks"'),
        ({"block": 0}, "at least 1"),
        ({"spread": -1}, "at least 0"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        vcc.DecoderConfig(**settings)


def test_settings_survive_json() -> None:
    for config in (CLOSED, vcc.DecoderConfig(scales=(64, 16, 1), mass=0.9, piece=256)):
        assert vcc.DecoderConfig.from_dict(config.to_dict()) == config
    with pytest.raises(UsageError, match="unknown"):
        vcc.DecoderConfig.from_dict({"window": 4})


def test_prefill_by_blocks_is_exact_when_open_and_near_when_not() -> None:
    model, text = tiny(), ids(2, 90)
    with torch.no_grad():
        expected = model(text).logits
        opened = vcc.wrap(model, vcc.DecoderConfig(**SMALL, mass=1 - 1e-13, prefill="blocks"))(text, use_cache=True)
        closed = vcc.wrap(model, vcc.DecoderConfig(**SMALL, budget=2, prefill="blocks"))(text, use_cache=True)
    torch.testing.assert_close(opened.logits, expected, rtol=0, atol=1e-9)
    assert not torch.allclose(closed.logits, expected)
    assert torch.allclose(closed.logits[:, :17], expected[:, :17])  # nothing is in the tree yet


def test_prefill_by_blocks_sees_past_padding() -> None:
    model, text = tiny(), ids(3, 90)
    mask = torch.ones_like(text)
    mask[0, :31] = mask[1, 40:52] = mask[2, 70:] = 0
    with torch.no_grad():
        expected = model(text, attention_mask=mask).logits
        wrapped = vcc.wrap(model, vcc.DecoderConfig(**SMALL, mass=1 - 1e-13, prefill="blocks"))
        found = wrapped(text, attention_mask=mask, use_cache=True).logits
    torch.testing.assert_close(found[mask == 1], expected[mask == 1], rtol=0, atol=1e-9)


def test_continuous_batching_is_rejected_before_anything_runs() -> None:
    wrapped = vcc.wrap(tiny(), CLOSED)
    for start in (wrapped.init_continuous_batching, lambda: wrapped.generate_batch([[1, 2, 3]])):
        with pytest.raises(UsageError, match="continuous batching keeps keys in pages of its own"):
            start()
    assert hasattr(type(vcc.unwrap(wrapped)), "init_continuous_batching"), "transformers has another name for it"
