"""Sparse attention in Hugging Face's BERT and RoBERTa: same class, heads and weights, another attention."""

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from reproduction.baselines.patterns import BigBird, BlockPattern, Mra
from reproduction.baselines.windows import Windows
from vcc.errors import ModelError, UsageError

Model = TypeVar("Model", bound=PreTrainedModel)
NAME = "vcc_blocks"  # under which Hugging Face finds the attention
KEY = "attention_blocks"  # of a configuration that asks for it
TYPES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "roberta-prelayernorm")
PATTERNS: dict[str, type[Mra] | type[BigBird] | type[Windows]] = {"mra": Mra, "bigbird": BigBird, "windows": Windows}


def use_blocks(model: Model, pattern: BlockPattern) -> Model:
    """Set this attention on the model, in place; it is saved with the model."""
    if model.config.model_type not in TYPES:
        raise ModelError(f"block attention supports {', '.join(TYPES)}, not {type(model).__name__}")
    setattr(model.config, KEY, pattern.to_dict())
    return restore_blocks(model)


def restore_blocks(model: Model) -> Model:
    """Restore the block attention of a loaded model that was saved with it."""
    if pattern_of(model) is not None:
        AttentionInterface.register(NAME, attention)
        AttentionMaskInterface.register(NAME, keep_mask)
        model.set_attn_implementation(NAME)
    return model


def without_blocks(model: Model) -> Model:
    """A copy with dense attention again."""
    plain = copy.deepcopy(model)
    if hasattr(plain.config, KEY):
        delattr(plain.config, KEY)
        plain.set_attn_implementation("sdpa")
    return plain


def pattern_of(model: PreTrainedModel) -> BlockPattern | None:
    values = getattr(model.config, KEY, None)
    return None if values is None else read_pattern(values)


def read_pattern(values: dict[str, Any]) -> BlockPattern:
    """The inverse of `to_dict`."""
    name = values.get("name")
    if name not in PATTERNS:
        raise UsageError(f"the attention pattern {name!r} must be one of {', '.join(PATTERNS)}")
    return PATTERNS[name](**{key: value for key, value in values.items() if key != "name"})


def attention(
    module: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    global_attention_mask: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The attention function that Hugging Face calls. q, k, v (B, H, n, d) -> (B, n, H, d). Without attention dropout,
    as in MRA's own code: there is no matrix of weights."""
    real = q.new_ones(q.shape[0], q.shape[2], dtype=torch.bool) if attention_mask is None else attention_mask
    pattern = read_pattern(getattr(module.config, KEY))
    out = pattern.attend_heads(q, k, v, real, global_attention_mask, scaling, module.layer_idx or 0)
    return out.transpose(1, 2), None


def keep_mask(attention_mask: Tensor | None = None, **_: Any) -> Tensor | None:
    """The mask over tokens (B, n), not expanded to pairs."""
    return None if attention_mask is None else attention_mask.bool()
