"""`wrap` and `unwrap`: the same weights as a VCC model and as the untouched one."""

import copy
from itertools import chain
from typing import Any, TypeVar

from transformers import PreTrainedModel

from vcc.config import VccConfig
from vcc.hosts.long_input import CLASSES, Wrapped, find_encoder, install
from vcc.hosts.register import known_classes, register_type

Model = TypeVar("Model", bound=PreTrainedModel)


def wrap(model: Model, config: VccConfig, max_length: int | None = None) -> Model:
    """A model that reads long inputs, sharing its weights with `model`, which stays as it is.

    `max_length` extends learned positions by repeating them, so that each can be trained on its own; without it they
    repeat as they are. A model that is wrapped already gets the new settings.
    """
    model = unwrap(model)
    register_type(getattr(getattr(model, "config", None), "model_type", None))
    if type(model) not in CLASSES:
        known = ", ".join(known_classes())
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
        find_encoder(wrapped).host.extend(wrapped, max_length)
    return wrapped


def unwrap(model: Model) -> Model:
    """The untouched Hugging Face model, sharing its weights; a model that is not wrapped comes back as it is."""
    if not isinstance(model, Wrapped):
        return model
    plain = share_weights(model)
    original = {wrapped: hf for hf, wrapped in CLASSES.items()}
    for module in plain.modules():
        for name in ("vcc_settings", "last_report", "compiled_graphs"):
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


def share_weights(model: Model) -> Model:
    """A copy whose parameters and buffers are the very same tensors."""
    memo = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    return copy.deepcopy(model, memo)
