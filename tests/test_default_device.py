"""`torch.set_default_device` is the user's: what the library makes is where the model is, whatever that says.

On "meta" nothing can be computed, so that a tensor which was made there would be found out.
"""

from collections.abc import Iterator

import pytest
import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

import vcc


@pytest.fixture
def elsewhere() -> Iterator[torch.device]:
    yield torch.device("meta")
    torch.set_default_device(None)


@torch.inference_mode()
def test_an_encoder(elsewhere: torch.device) -> None:
    small = BertConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, vocab_size=50,
        max_position_embeddings=512, attn_implementation="sdpa",
    )  # fmt: skip
    model = vcc.wrap(BertModel(small).eval(), vcc.VccConfig(budget=(4,), dense_below=0, window_layers=1))
    ids, vips = torch.randint(10, 50, (2, 200)), torch.zeros(2, 200, dtype=torch.int64)
    vips[:, :5] = 1
    mask = torch.ones_like(ids)
    mask[1, 150:] = 0
    here = model(ids, attention_mask=mask, vip_mask=vips).last_hidden_state
    torch.set_default_device(elsewhere)
    assert torch.equal(model(ids, attention_mask=mask, vip_mask=vips).last_hidden_state, here)


@torch.inference_mode()
def test_a_decoder(elsewhere: torch.device) -> None:
    small = LlamaConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=50,
    )  # fmt: skip
    settings = vcc.DecoderConfig(budget=2, piece=64, fresh=16, local=16, first=4, block=8)
    model = vcc.wrap(LlamaForCausalLM(small).eval(), settings)
    ids = torch.randint(0, 50, (2, 240))
    mask = torch.ones_like(ids)
    mask[1, :30] = 0

    def read() -> torch.Tensor:
        cache = model.new_cache()
        model(ids[:, :200], attention_mask=mask[:, :200], past_key_values=cache)
        for end in range(201, 241):
            out = model(ids[:, end - 1 : end], attention_mask=mask[:, :end], past_key_values=cache)
        cache.crop(-20)
        return torch.cat([out.logits, model(ids[:, 220:], attention_mask=mask, past_key_values=cache).logits], 1)

    here = read()
    torch.set_default_device(elsewhere)
    assert torch.equal(read(), here)
