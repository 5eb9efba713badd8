"""`wrap_decoder` and `unwrap_decoder`: the same weights as a model with trees and as the untouched one."""

from typing import Any, TypeVar

from transformers import PreTrainedModel

from vcc.decoders.config import DecoderConfig
from vcc.decoders.families import DECODERS, find_decoder
from vcc.decoders.interface import PREFIX as ATTENTION_PREFIX
from vcc.decoders.model import TreeDecoder, check_decoder
from vcc.decoders.register import WRAPPED, register_type
from vcc.errors import ModelError
from vcc.hosts.instance_forwards import put_on, take_off
from vcc.hosts.wrap import become, share_weights

Model = TypeVar("Model", bound=PreTrainedModel)


def wrap_decoder(model: Model, config: DecoderConfig) -> Model:
    """A causal language model that keeps its keys and values in trees, sharing its weights with `model`."""
    model = unwrap_decoder(model)
    register_type(getattr(getattr(model, "config", None), "model_type", None))
    if type(model) not in WRAPPED:
        check_latent(model)
        known = ", ".join(family.causal_lm for family in DECODERS)
        raise ModelError(
            f"cannot put a tree under {type(model).__name__}; the decoders that can be wrapped are {known}"
        )
    check_decoder(model)
    wrapped: Any = share_weights(model)
    hooks = take_off(wrapped)
    for module in wrapped.modules():
        own = module.__dict__.get("config")
        if own is not None and type(own) in WRAPPED:
            become(own, WRAPPED[type(own)])
            own.vcc = config
    wrapped.__class__ = WRAPPED[type(model)]
    wrapped.enter_trees()
    put_on(hooks)
    return wrapped


def unwrap_decoder(model: Model) -> Model:
    """The untouched Hugging Face model, sharing its weights; a model that is not wrapped comes back as it is."""
    if not isinstance(model, TreeDecoder):
        return model
    plain: Any = share_weights(model)
    hooks = take_off(plain)
    original = {wrapped: hf for hf, wrapped in WRAPPED.items()}
    plain.__dict__.pop("last_cache", None)
    for module in plain.modules():
        if type(module) in original:
            module.__class__ = original[type(module)]
        own = module.__dict__.get("config")
        if own is None:
            continue
        if type(own) in original:
            become(own, original[type(own)])
            own.__dict__.pop("vcc", None)
        own._attn_implementation_internal = (own._attn_implementation or "").removeprefix(ATTENTION_PREFIX) or None
    put_on(hooks)
    return plain


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
