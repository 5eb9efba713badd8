"""`wrap_decoder` and `unwrap_decoder`: the same weights as a model with trees and as the untouched one."""

from collections.abc import Callable
from typing import Any, TypeVar

from transformers import PreTrainedModel

from vcc.decoders.config import DecoderConfig
from vcc.decoders.families import DECODERS, find_decoder
from vcc.decoders.interface import PREFIX as ATTENTION_PREFIX
from vcc.decoders.model import TreeDecoder, check_decoder
from vcc.decoders.register import WRAPPED, register_type
from vcc.errors import ModelError
from vcc.hosts.changed_copy import changed_copy
from vcc.hosts.made_classes import change_class, configs, restore_classes, wrap_configs

Model = TypeVar("Model", bound=PreTrainedModel)


def wrap_decoder(model: Model, config: DecoderConfig) -> Model:
    """A causal language model that keeps its keys and values in trees and shares its weights with `model`."""
    model = unwrap_decoder(model)
    register_type(getattr(getattr(model, "config", None), "model_type", None))
    if type(model) not in WRAPPED:
        check_latent(model)
        known = ", ".join(family.causal_lm for family in DECODERS)
        raise ModelError(f"cannot wrap {type(model).__name__}; the decoders that can be wrapped are {known}")
    check_decoder(model)

    def change(copied: Any) -> None:
        wrap_configs(copied, WRAPPED, config)
        change_class(copied, WRAPPED)
        copied.enter_trees()

    return changed_copy(model, change)


def unwrap_decoder(model: Model) -> Model:
    """The untouched Hugging Face model, which shares its weights; other models are returned as they are."""

    def change(copied: Any) -> None:
        copied.__dict__.pop("last_cache", None)
        restore_classes(copied, WRAPPED)
        rename_attention(copied, lambda name: (name or "").removeprefix(ATTENTION_PREFIX) or None)

    return changed_copy(model, change) if isinstance(model, TreeDecoder) else model


def rename_attention(model: Any, rename: Callable[[str | None], str | None]) -> None:
    """Set other attention functions in place, without the checks of the public setter."""
    for config in configs(model):
        config._attn_implementation_internal = rename(config._attn_implementation)


def is_decoder(model: Any) -> bool:
    """Whether a model is a causal language model of a family in the table, wrapped or not."""
    family = find_decoder(getattr(getattr(model, "config", None), "model_type", None))
    return family is not None and family.causal_lm in {cls.__name__ for cls in type(model).__mro__}


def check_latent(model: Any) -> None:
    config: Any = getattr(model, "config", None)
    if getattr(config, "kv_lora_rank", None) is not None:
        raise ModelError(
            f"{type(model).__name__} keeps latent vectors in place of keys and values (kv_lora_rank="
            f"{config.kv_lora_rank}); a tree needs the keys that attention reads"
        )
