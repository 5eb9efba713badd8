"""Make the wrapped classes of a family from its row in the table at first use, and register them with the Auto
classes."""

import importlib
import inspect
from typing import Any

from transformers import AutoConfig, GenerationMixin
from transformers.conversion_mapping import (
    get_checkpoint_conversion_mapping,
    register_checkpoint_conversion_mapping,
)
from transformers.models.auto import configuration_auto, modeling_auto

import vcc.hosts.eight_bit_loading  # noqa: F401  registers how files in 8 bits are loaded
from vcc.hosts import PREFIX
from vcc.hosts.families import FAMILIES, Family, find_family
from vcc.hosts.families.layer import HookedLayer
from vcc.hosts.forward.encoder import LongInputEncoder
from vcc.hosts.forward.heads import VIP_NAMES, Seq2Seq, WithHead
from vcc.hosts.made_classes import CLASSES, WithSettings, find, keep, record_alike

# Each Auto class with its table of names, and the default VIP rule.
HEADS: dict[str, tuple[str, str | None]] = {
    "AutoModel": ("MODEL_MAPPING_NAMES", None),
    "AutoModelForMaskedLM": ("MODEL_FOR_MASKED_LM_MAPPING_NAMES", "mask"),
    "AutoModelForSequenceClassification": ("MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES", "first"),
    "AutoModelForTokenClassification": ("MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES", None),
    "AutoModelForQuestionAnswering": ("MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES", "separator"),
    "AutoModelForMultipleChoice": ("MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES", "separator"),
    "AutoModelForSeq2SeqLM": ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", None),
    "AutoModelForTextEncoding": ("MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES", None),
}


def register_type(model_type: str | None) -> None:
    """Register the family of a model type, "bert" or "vcc-bert"; unknown types are ignored."""
    family = find_family(model_type)
    if family is not None:
        register(family)


def register(family: Family) -> None:
    """Make the wrapped classes of a family and register them with the Auto classes, once."""
    import transformers

    if family.model_type not in configuration_auto.CONFIG_MAPPING:
        return  # a family of a later transformers
    hf_config = configuration_auto.CONFIG_MAPPING[family.model_type]
    if hf_config in CLASSES:
        return
    folder = configuration_auto.model_type_to_module_name(family.model_type)
    modeling = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    encoder, layer = getattr(modeling, family.encoder), getattr(modeling, family.layer)
    settings = {"model_type": PREFIX + family.model_type, "vcc": None}
    config: Any = keep(
        __name__, CLASSES, hf_config, type(f"Vcc{hf_config.__name__}", (WithSettings, hf_config), settings)
    )
    AutoConfig.register(config.model_type, config)
    renamed = get_checkpoint_conversion_mapping(family.model_type)
    if renamed:
        # The family's files have other names than its parameters. Wrapped classes, which are not transformers' own, use
        # a mapping only if it was registered, also for files of the untouched model.
        for model_type in (config.model_type, family.model_type):
            register_checkpoint_conversion_mapping(model_type, renamed, overwrite=True)
    # Hugging Face finds layers that must not be split by name, and layers whose output it records by base class.
    keep(
        __name__,
        CLASSES,
        layer,
        type(layer.__name__, (HookedLayer, layer), {"__doc__": f"{layer.__name__} that VCC can enter."}),
    )
    make_class(encoder, LongInputEncoder, config, family, None)
    for auto_name, (table_name, rule) in HEADS.items():
        table = getattr(modeling_auto, table_name)
        name = table.get(family.model_type)
        if not isinstance(name, str):
            continue
        hf_class = getattr(transformers, name)
        if hf_class not in CLASSES:
            mixin = Seq2Seq if is_seq2seq(hf_class) else WithHead
            make_class(hf_class, mixin, config, family, None if generates(hf_class) else rule)
        getattr(transformers, auto_name).register(config, CLASSES[hf_class])
        table[config.model_type] = CLASSES[hf_class].__name__


def make_class(hf_class: Any, mixin: Any, config: type, family: Family, rule: str | None) -> None:
    bases = (mixin, hf_class) + ((GenerationMixin,) if generates(hf_class) else ())
    choices = ("choice_tokens",) if hf_class.__name__.endswith("ForMultipleChoice") else ()
    signature = with_more(hf_class.forward, VIP_NAMES + choices)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return mixin.forward(self, *args, **kwargs)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    forward.__doc__ = hf_class.forward.__doc__
    module, host = family.host.split(":")
    body = {
        "__doc__": f"{hf_class.__name__} that reads long inputs through `vcc.encode`.",
        "config_class": config,
        "hf_class": hf_class,
        "forward_names": tuple(signature.parameters)[1:],
        "forward": forward,
        "host_class": getattr(importlib.import_module(module), host),
        "family": family,
        "vip_rule": rule,
    }
    record_alike(hf_class, keep(__name__, CLASSES, hf_class, type(f"Vcc{hf_class.__name__}", bases, body)))


def __getattr__(name: str) -> Any:
    return find(__name__, name, register, FAMILIES)


def known_classes() -> list[str]:
    """The names of all Hugging Face classes that can be wrapped, without importing them."""
    tables = [getattr(modeling_auto, table) for table, _ in HEADS.values()]
    names = {table.get(family.model_type) for table in tables for family in FAMILIES}
    return sorted({*(name for name in names if isinstance(name, str)), *(family.encoder for family in FAMILIES)})


def with_more(forward: Any, names: tuple[str, ...]) -> inspect.Signature:
    """The signature of a Hugging Face forward, with our parameters before its keyword arguments."""
    signature = inspect.signature(forward)
    extra = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names]
    parameters = list(signature.parameters.values())
    at = next((i for i, p in enumerate(parameters) if p.kind is inspect.Parameter.VAR_KEYWORD), len(parameters))
    return signature.replace(parameters=[*parameters[:at], *extra, *parameters[at:]])


def is_seq2seq(hf_class: Any) -> bool:
    return "decoder_input_ids" in inspect.signature(hf_class.forward).parameters


def generates(hf_class: type) -> bool:
    return issubclass(hf_class, GenerationMixin)
