"""Tiny causal language models with random weights, in float64, one for each family."""

from typing import Any

import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

import vcc

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
CONFIGS: dict[str, Any] = {
    "llama": lambda: LlamaConfig(**SIZES),
    "mistral": lambda: MistralConfig(**SIZES, sliding_window=None),
    "qwen2": lambda: Qwen2Config(**SIZES),
    "qwen3": lambda: Qwen3Config(**SIZES),
    "gemma3": lambda: Gemma3TextConfig(
        **SIZES, sliding_window=24, layer_types=["sliding_attention", "full_attention", "sliding_attention"]
    ),
}
# Small pieces, so that a short text already has several of them.
SMALL: dict[str, Any] = {"scales": (4, 1), "first": 3, "local": 6, "fresh": 8, "piece": 16, "block": 8}
OPEN = vcc.DecoderConfig(**SMALL, budget=10_000)
CLOSED = vcc.DecoderConfig(**SMALL, budget=3)


def tiny(family: str = "llama", attention: str = "sdpa", seed: int = 0) -> Any:
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(CONFIGS[family](), attn_implementation=attention)
    for parameter in model.parameters():  # sharper attention than that of a new model, so that closing a node shows
        parameter.data = parameter.data.double() * (3.0 if parameter.ndim == 2 else 1.0)
    return model.double().eval()


def ids(batch: int, n: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(2, 99, (batch, n), generator=torch.Generator().manual_seed(seed))
