"""A Llama of some shape with random weights, which do not change the times of new tokens, and a clock for these."""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.generation.streamers import BaseStreamer


@dataclass(frozen=True)
class LlamaShape:
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int


def random_llama(shape: LlamaShape, device: torch.device, layers: int | None = None, **more: Any) -> Any:
    """In bf16 on a GPU, made there: a large one in float32 would not fit."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=layers or shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.hidden // shape.heads,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        **more,
    )
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if device.type == "cuda" else torch.float32)
    try:
        with device:
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(default)


class TokenClock(BaseStreamer):
    """When each token came."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Tensor) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass

    def steps(self) -> list[float]:
        """Milliseconds between two tokens."""
        return [1e3 * (b - a) for a, b in zip(self.times[:-1], self.times[1:], strict=True)]
