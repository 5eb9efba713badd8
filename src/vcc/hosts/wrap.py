"""`wrap` and `unwrap`: the same weights as a VCC model and as the untouched one; and the classes behind them."""

import copy
import sys
from itertools import chain
from typing import Any, TypeVar

from transformers import AutoConfig, GenerationMixin, PreTrainedModel
from transformers.models.auto import configuration_auto, modeling_auto
from transformers.utils.output_capturing import _CAN_RECORD_REGISTRY

from vcc.config import VccConfig
from vcc.hosts import PREFIX
from vcc.hosts.families import FAMILIES, Family
from vcc.hosts.reader import Head, Reader, Seq2Seq, Wrapped, find_reader, with_vips

Model = TypeVar("Model", bound=PreTrainedModel)

# Each Auto class with its table of names, and how the VIPs are found when the user does not name them.
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
CLASSES: dict[type, type] = {}  # Hugging Face class -> wrapped class, models and configurations alike


def wrap(model: Model, config: VccConfig, max_length: int | None = None) -> Model:
    """A model that reads long inputs, sharing its weights with `model`, which stays as it is.

    `max_length` extends learned positions by repeating them, so that each can be trained on its own; without it they
    repeat as they are. A model that is wrapped already gets the new settings.
    """
    model = unwrap(model)
    if type(model) not in CLASSES:
        known = ", ".join(sorted(cls.__name__ for cls in CLASSES if issubclass(cls, PreTrainedModel)))
        raise TypeError(f"cannot wrap {type(model).__name__}; the classes that can be wrapped are {known}")
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length={max_length}: it must be a positive number of tokens")
    wrapped = share_weights(model)
    for module in wrapped.modules():
        own = module.__dict__.get("config")
        if own is not None and type(own) in CLASSES:
            become(own, CLASSES[type(own)])
            own.vcc = config.to_dict()
    wrapped.__class__ = CLASSES[type(model)]
    install(wrapped)
    if max_length is not None:
        find_reader(wrapped).host_class.extend(wrapped, max_length)
    return wrapped


def unwrap(model: Model) -> Model:
    """The untouched Hugging Face model, sharing its weights; a model that is not wrapped comes back as it is."""
    if not isinstance(model, Wrapped):
        return model
    plain = share_weights(model)
    original = {wrapped: hf for hf, wrapped in CLASSES.items()}
    for module in plain.modules():
        for name in ("vcc_settings", "last_report", "compiled_read"):
            module.__dict__.pop(name, None)
        if type(module) in original:
            module.__class__ = original[type(module)]
        own = module.__dict__.get("config")
        if type(own) in original:
            become(own, original[type(own)])
            own.__dict__.pop("vcc", None)
    return plain


def become(config: Any, kind: type) -> None:
    """Change a configuration's class; the model type is the class's, whatever file it was loaded from."""
    config.__class__ = kind
    config.__dict__.pop("model_type", None)


def install(model: Any) -> None:
    """Turn the modules inside `model` into wrapped ones, with the settings of their configuration."""
    for module in model.modules():
        if type(module) in CLASSES and not decodes(module):
            module.__class__ = CLASSES[type(module)]
        if isinstance(module, Reader):
            settings = VccConfig.from_dict(getattr(module.config, "vcc", None) or {})
            module.vcc_settings = settings.resolved(module.host_class(module).num_layers)
            for config in {id(c): c for c in (module.config, model.config)}.values():
                config.vcc = module.vcc_settings.to_dict()


def decodes(module: Any) -> bool:
    """T5 builds its decoder from the class of its encoder."""
    return bool(module.__dict__.get("is_decoder", False))


def share_weights(model: Model) -> Model:
    """A copy whose parameters and buffers are the very same tensors."""
    memo = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    return copy.deepcopy(model, memo)


def register(family: Family) -> None:
    """Make the wrapped classes of a family and enter them into the Auto classes."""
    import transformers

    here = sys.modules[__name__]
    hf_config = configuration_auto.CONFIG_MAPPING[family.model_type]
    settings = {"model_type": f"{PREFIX}{family.model_type}", "vcc": None}
    config: Any = type(f"Vcc{hf_config.__name__}", (hf_config,), settings)
    config.__module__ = __name__
    setattr(here, config.__name__, config)
    CLASSES[hf_config] = config
    AutoConfig.register(config.model_type, config)
    reader = getattr(sys.modules[hf_module(family)], family.reader)
    if reader.__name__ not in vars(transformers):  # a stack inside other models, such as T5's
        make_class(reader, Reader, config, family, None)
    for auto_name, (table_name, rule) in HEADS.items():
        table = getattr(modeling_auto, table_name)
        name = table.get(family.model_type)
        if not isinstance(name, str):
            continue
        hf_class = getattr(transformers, name)
        if hf_class not in CLASSES:
            mixin = Reader if hf_class is reader else Seq2Seq if is_seq2seq(hf_class) else Head
            make_class(hf_class, mixin, config, family, None if generates(hf_class) else rule)
        getattr(transformers, auto_name).register(config, CLASSES[hf_class])
        table[config.model_type] = CLASSES[hf_class].__name__


def make_class(hf_class: Any, mixin: Any, config: type, family: Family, rule: str | None) -> None:
    bases = (mixin, hf_class) + ((GenerationMixin,) if generates(hf_class) else ())
    names = tuple(with_vips(hf_class.forward).parameters)[1:]

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return mixin.forward(self, *args, **kwargs)

    forward.__signature__ = with_vips(hf_class.forward)  # type: ignore[attr-defined]
    forward.__doc__ = hf_class.forward.__doc__
    body = {
        "__module__": __name__,
        "__doc__": f"{hf_class.__name__} that reads long inputs through `vcc.encode`.",
        "config_class": config,
        "hf_class": hf_class,
        "forward_names": names,
        "forward": forward,
        "host_class": family.host,
        "model_type": family.model_type,
        "vip_rule": rule,
    }
    wrapped = type(f"Vcc{hf_class.__name__}", bases, body)
    CLASSES[hf_class] = wrapped
    for cls in (hf_class, wrapped):  # a model enters itself when it is built, not when its class changes
        _CAN_RECORD_REGISTRY[str(cls)] = hf_class._can_record_outputs
    setattr(sys.modules[__name__], wrapped.__name__, wrapped)


def hf_module(family: Family) -> str:
    """The module of the family's modeling code, imported."""
    import importlib

    folder = configuration_auto.model_type_to_module_name(family.model_type)
    return importlib.import_module(f"transformers.models.{folder}.modeling_{folder}").__name__


def is_seq2seq(hf_class: Any) -> bool:
    return "decoder_input_ids" in with_vips(hf_class.forward).parameters


def generates(hf_class: type) -> bool:
    return issubclass(hf_class, GenerationMixin)


for _family in FAMILIES:
    register(_family)
