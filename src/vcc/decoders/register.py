"""Make the wrapped classes of a decoder family at first use, and register them with the Auto classes."""

from typing import Any

import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto import configuration_auto, modeling_auto

from vcc.decoders.families import DECODERS, DecoderFamily, find_decoder
from vcc.decoders.model import TreeDecoder
from vcc.hosts import PREFIX
from vcc.hosts.made_classes import WithSettings, find, keep, record_alike

WRAPPED: dict[type, Any] = {}  # Hugging Face's classes -> ours


def register_type(model_type: str | None) -> None:
    """Register the family of a model type, "llama" or "vcc-llama"; unknown types are ignored."""
    family = find_decoder(model_type)
    if family is not None:
        register(family)


def register(family: DecoderFamily) -> None:
    """Make the wrapped class of a family and register it with the Auto classes, once."""
    hf_config = configuration_auto.CONFIG_MAPPING[family.model_type]
    if hf_config in WRAPPED:
        return
    hf_class: Any = getattr(transformers, family.causal_lm)
    body = {"model_type": PREFIX + family.model_type, "vcc": None}
    config: Any = keep(__name__, WRAPPED, hf_config, type(f"Vcc{hf_config.__name__}", (WithSettings, hf_config), body))
    AutoConfig.register(config.model_type, config)
    doc = f"{hf_class.__name__} that keeps its keys and values in trees."
    body = {"__doc__": doc, "config_class": config, "hf_class": hf_class, "forward": TreeDecoder.forward_like(hf_class)}
    wrapped = keep(__name__, WRAPPED, hf_class, type(f"Vcc{hf_class.__name__}", (TreeDecoder, hf_class), body))
    record_alike(hf_class, wrapped)
    AutoModelForCausalLM.register(config, wrapped)
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type] = wrapped.__name__


def __getattr__(name: str) -> Any:
    return find(__name__, name, register, DECODERS)
