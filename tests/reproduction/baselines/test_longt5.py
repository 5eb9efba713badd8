"""LongT5 from a T5's weights is that T5 where it sees every token and no block."""

import copy
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, LongT5ForConditionalGeneration, T5Config, T5ForConditionalGeneration

from reproduction.baselines.longt5 import longt5_from
from vcc.hosts import load


@pytest.fixture(scope="module", params=["one embedding", "a head of its own"])
def t5(request: pytest.FixtureRequest) -> T5ForConditionalGeneration:
    """As first published, or as version 1.1 and Flan."""
    torch.manual_seed(0)
    tied = request.param == "one embedding"
    config = T5Config(
        vocab_size=60, d_model=16, d_kv=8, d_ff=24, num_layers=3, num_decoder_layers=2, num_heads=2, dropout_rate=0.0,
        feed_forward_proj="gated-gelu", relative_attention_num_buckets=8, relative_attention_max_distance=20,
        decoder_start_token_id=0, tie_word_embeddings=tied,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    if not tied:
        model.lm_head.weight = torch.nn.Parameter(torch.randn(60, 16))
    model = model.double().eval()
    for name, weights in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weights, 0.3, 1.0)
    return model


def inputs(n: int, batch: int = 3) -> dict[str, torch.Tensor]:
    torch.manual_seed(n)
    ids = torch.randint(2, 60, (batch, n))
    mask = torch.ones_like(ids)
    mask[0, n - 3 :] = 0
    return {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": torch.randint(2, 60, (batch, 5))}


def run(model: T5ForConditionalGeneration | LongT5ForConditionalGeneration, n: int) -> torch.Tensor:
    given = inputs(n)
    hidden = model(**given).encoder_last_hidden_state
    assert hidden is not None
    return torch.cat([hidden[given["attention_mask"] > 0].flatten(), model(**given).logits.flatten()])


def test_equal_where_the_radius_covers_the_input_and_no_block_fits(t5: T5ForConditionalGeneration) -> None:
    made = longt5_from(t5, local_radius=39, global_block_size=64)
    for n in (40, 33):  # a full block of local attention, and one that is padded
        torch.testing.assert_close(run(made, n), run(t5, n), rtol=1e-5, atol=1e-5)  # its softmax is in 32 bits


def test_it_is_saved_and_loaded_whole(t5: T5ForConditionalGeneration, tmp_path: Path) -> None:
    made = longt5_from(t5)
    made.save_pretrained(tmp_path)
    loaded, _ = load.load_model(tmp_path, AutoModelForSeq2SeqLM, local=True)
    torch.testing.assert_close(run(loaded.double().eval(), 40), run(made, 40), rtol=1e-5, atol=1e-5)


def test_a_small_radius_and_blocks_each_change_it(t5: T5ForConditionalGeneration) -> None:
    plain = run(t5, 40)
    for changed in ({"local_radius": 7, "global_block_size": 64}, {"local_radius": 39, "global_block_size": 16}):
        difference = (run(longt5_from(t5, **changed), 40) - plain).abs().max()
        assert difference > 1e-3, changed


def test_what_is_new_starts_at_t5s_scale_and_the_weights_are_copies(t5: T5ForConditionalGeneration) -> None:
    before = copy.deepcopy(t5.state_dict())
    made = longt5_from(t5)
    first = made.encoder.block[0].layer[0].TransientGlobalSelfAttention
    mean = t5.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.mean(0)
    torch.testing.assert_close(first.global_relative_attention_bias.weight, mean.expand(8, 2))
    for theirs, own in zip(t5.encoder.block, made.encoder.block, strict=True):
        scale = theirs.layer[0].layer_norm.weight.norm() / 4  # of 16 features
        found = own.layer[0].TransientGlobalSelfAttention.global_input_layer_norm.weight
        torch.testing.assert_close(found, scale.expand(16))
    with torch.no_grad():
        for weights in made.parameters():
            weights.zero_()
    assert all(torch.equal(before[name], value) for name, value in t5.state_dict().items())
