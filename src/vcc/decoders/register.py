"""The wrapped classes of a decoder family, made from its row when it is first asked for, and entered into transformers'
Auto classes."""

import sys
from typing import Any

import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto import configuration_auto, modeling_auto
from transformers.utils.output_capturing import _CAN_RECORD_REGISTRY

from vcc.decoders.config import DecoderConfig
from vcc.decoders.families import DECODERS, DecoderFamily, find_decoder
from vcc.decoders.model import TreeDecoder
from vcc.hosts import PREFIX

WRAPPED: dict[type, Any] = {}  # Hugging Face's classes -> ours


class WithDecoderSettings:
    """Mixed into Hugging Face's configurations: `vcc` holds the settings as plain values, however they are given."""

    def __setattr__(self, name: str, value: Any) -> None:
        plain = value.to_dict() if name == "vcc" and isinstance(value, DecoderConfig) else value
        super().__setattr__(name, plain)


def register_type(model_type: str | None) -> None:
    """The family of a model type, "llama" or "vcc-llama"; a type that is not in the table is left alone."""
    family = find_decoder(model_type)
    if family is not None:
        register(family)


def register(family: DecoderFamily) -> None:
    """Make the wrapped class of a family and enter it into the Auto classes, once."""
    hf_config = configuration_auto.CONFIG_MAPPING[family.model_type]
    if hf_config in WRAPPED:
        return
    hf_class: Any = getattr(transformers, family.causal_lm)
    body = {"model_type": PREFIX + family.model_type, "vcc": None}
    config: Any = keep(hf_config, type(f"Vcc{hf_config.__name__}", (WithDecoderSettings, hf_config), body))
    AutoConfig.register(config.model_type, config)
    doc = f"{hf_class.__name__} that keeps its keys and values in trees."
    body = {"__doc__": doc, "config_class": config, "hf_class": hf_class, "forward": TreeDecoder.forward_like(hf_class)}
    wrapped = keep(hf_class, type(f"Vcc{hf_class.__name__}", (TreeDecoder, hf_class), body))
    for cls in (hf_class, wrapped):  # a model enters itself when it is built, not when its class changes
        _CAN_RECORD_REGISTRY[str(cls)] = hf_class._can_record_outputs
    AutoModelForCausalLM.register(config, wrapped)
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type] = wrapped.__name__


def keep(hf_class: type, wrapped: type) -> type:
    """Enter a wrapped class into the table, and into this module under a name that pickle finds it by."""
    wrapped.__module__, wrapped.__qualname__ = __name__, f"Vcc{hf_class.__name__}"
    setattr(sys.modules[__name__], wrapped.__qualname__, wrapped)
    WRAPPED[hf_class] = wrapped
    return wrapped


def __getattr__(name: str) -> Any:
    """A pickle may ask for a class of a family that nobody has asked for yet."""
    if name.startswith("Vcc"):
        for family in DECODERS:
            register(family)
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
