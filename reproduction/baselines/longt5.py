"""LongT5 with a T5's weights: the encoder attends to neighbours and to a sum of every block of tokens.

All weights have the same names but the encoder's attention. LongT5 adds two: a norm of the sums in each layer, and a
bias for the distance between a token and a block. The norm starts at the scale of the layer's own, so blocks reach the
attention as large as tokens, and the bias at the mean of T5's over all distances.
"""

from typing import Any

import torch
from transformers import LongT5Config, LongT5ForConditionalGeneration, T5ForConditionalGeneration

from vcc.errors import UsageError

NAMES = ("layer.0.SelfAttention.", "layer.0.TransientGlobalSelfAttention.")  # T5's, LongT5's
SHARED = (
    "vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_decoder_layers", "num_heads", "dropout_rate",
    "relative_attention_num_buckets", "relative_attention_max_distance", "layer_norm_epsilon", "feed_forward_proj",
    "pad_token_id", "eos_token_id", "decoder_start_token_id",
)  # fmt: skip


def longt5_from(
    model: T5ForConditionalGeneration, local_radius: int = 127, global_block_size: int = 16
) -> LongT5ForConditionalGeneration:
    """A LongT5 with transient-global attention and a copy of the weights. The defaults are its authors'."""
    config = LongT5Config(
        **{name: getattr(model.config, name) for name in SHARED},
        encoder_attention_type="transient-global", local_radius=local_radius, global_block_size=global_block_size,
        tie_word_embeddings=getattr(model.config, "scale_decoder_outputs", model.config.tie_word_embeddings),
    )  # fmt: skip
    made: Any = LongT5ForConditionalGeneration(config)
    if model.lm_head.weight is not model.shared.weight:  # T5 1.1
        made.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    made.to(model.dtype)
    weights = {longt5_name(name): value for name, value in model.state_dict().items()}
    missing, unexpected = made.load_state_dict(weights, strict=False)
    new = [name for name in missing if "global_" not in name]
    if new or unexpected:
        raise UsageError(f"LongT5 cannot take the weights of this T5: {', '.join([*new, *unexpected])} differ")
    first = made.encoder.block[0].layer[0]
    table = first.TransientGlobalSelfAttention
    with torch.no_grad():
        table.global_relative_attention_bias.weight.copy_(table.relative_attention_bias.weight.mean(0))
        for block in made.encoder.block:
            norm = block.layer[0].layer_norm.weight
            attention = block.layer[0].TransientGlobalSelfAttention
            attention.global_input_layer_norm.weight.fill_(float(norm.pow(2).mean().sqrt()))
    made.train(model.training)
    return made


def longt5_name(name: str) -> str:
    """The name of a T5's weight in LongT5."""
    return name.replace(*NAMES) if name.startswith("encoder.") else name
