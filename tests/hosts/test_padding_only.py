"""Nodes that hold padding only: in half precision, too, every gradient is finite."""

import pytest
import torch
from transformers import RobertaPreLayerNormConfig, RobertaPreLayerNormForQuestionAnswering

import vcc


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_gradients_are_finite_where_a_node_holds_padding_only(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    config = RobertaPreLayerNormConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=80,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    settings = vcc.VccConfig(scales=(8, 2, 1), budget=(3, 4), window_layers=0, dense_below=0)
    model = vcc.wrap(RobertaPreLayerNormForQuestionAnswering(config), settings).to(dtype).train()
    ids, mask = torch.randint(5, 60, (2, 60)), torch.ones(2, 60, dtype=torch.long)
    ids[1, 20:], mask[1, 20:] = config.pad_token_id, 0  # five nodes of eight tokens hold padding only
    vips = torch.zeros_like(ids)
    vips[:, :4] = 1
    output = model(input_ids=ids, attention_mask=mask, vip_mask=vips)
    (output.start_logits.float() * mask).sum().backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    assert len(gradients) > 20
    assert [name for name, gradient in gradients.items() if not gradient.isfinite().all()] == []
