"""Block attention in Hugging Face's BERT and RoBERTa: same class, heads and weights, another attention."""

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from reproduction.baselines.blocks import AttentionBlocks
from reproduction.baselines.patterns import BlockPattern, read_pattern
from vcc.errors import ModelError

Model = TypeVar("Model", bound=PreTrainedModel)
NAME = "vcc_blocks"  # under which Hugging Face finds the attention
KEY = "attention_blocks"  # of a configuration that asks for it
TYPES = ("bert", "roberta", "xlm-roberta", "camembert", "electra")


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


def attention(
    module: Any, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """The attention function that Hugging Face calls. q, k, v (B, H, n, d) -> (B, n, H, d). Without attention dropout,
    as in MRA's own code: there is no matrix of weights."""
    B, H, n, d = q.shape
    real = q.new_ones(B, n, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
    real = real[:, None, :].expand(B, H, n).flatten(0, 1)
    pattern = read_pattern(getattr(module.config, KEY))
    blocks = AttentionBlocks.of(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), real, pattern.block, scaling)
    with torch.autocast(q.device.type, enabled=False):  # sums over blocks stay in float32
        out = pattern.attend(blocks, module.layer_idx or 0)[:, :n]  # (B H, n, d)
    return out.unflatten(0, (B, H)).transpose(1, 2), None


def keep_mask(attention_mask: Tensor | None = None, **_: Any) -> Tensor | None:
    """The mask over tokens (B, n) as given, not expanded to pairs."""
    return attention_mask
