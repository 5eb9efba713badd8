"""`wrap` and `unwrap`: the same weights as a VCC model and as the untouched one."""

import copy
import weakref
from itertools import chain
from typing import Any, TypeVar

from transformers import PreTrainedModel

from vcc.config import VccConfig
from vcc.errors import ModelError
from vcc.hosts.instance_forwards import check_forwards, put_on, put_there, take_off
from vcc.hosts.long_input import CLASSES, SHARED, Wrapped, find_encoder, install
from vcc.hosts.register import known_classes, register_type
from vcc.hosts.special_ids import note_special_ids

Model = TypeVar("Model", bound=PreTrainedModel)
OF_AN_ENCODER = ("vcc_settings", "before_decoder", "last_report", "inputs_read", "inputs_compressed", "compiled_graphs")


def wrap(model: Model, config: VccConfig, max_length: int | None = None, tokenizer: Any = None) -> Model:
    """A model that reads long inputs, sharing its weights with `model`, which stays as it is.

    Sharing is for good: training one trains the other, and `.half()` or `.to(device)` on one, which puts other numbers
    into the same tensors, moves the other along. Where that is not wanted, wrap a copy: `wrap(copy.deepcopy(model))`.
    `max_length` extends learned positions by repeating them, so that each can be trained on its own; without it they
    repeat as they are. `tokenizer` tells which tokens are masked and separate texts, for a model that was not loaded
    from where its tokenizer is. A model that is wrapped already gets the new settings.
    """
    model = unwrap(model)
    register_type(getattr(getattr(model, "config", None), "model_type", None))
    if type(model) not in CLASSES:
        known = ", ".join(known_classes())
        raise TypeError(f"cannot wrap {type(model).__name__}; the classes that can be wrapped are {known}")
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length={max_length}: it must be a positive number of tokens")
    wrapped = share_weights(model)
    hooks = take_off(wrapped)
    if hooks and max_length is not None:
        raise ModelError(
            f"max_length={max_length}: positions cannot be added to offloaded weights; wrap before offloading"
        )
    for module in wrapped.modules():
        own = module.__dict__.get("config")
        if own is not None and type(own) in CLASSES:
            become(own, CLASSES[type(own)])
            own.vcc = config.to_dict()
            if tokenizer is not None:
                note_special_ids(own, tokenizer)
    wrapped.__class__ = CLASSES[type(model)]
    install(wrapped)
    if max_length is not None:
        find_encoder(wrapped).host.extend(wrapped, max_length)
    put_on(hooks)
    SHARED[wrapped] = weakref.ref(model)
    return wrapped


def unwrap(model: Model) -> Model:
    """The untouched Hugging Face model, sharing its weights; a model that is not wrapped comes back as it is."""
    if not isinstance(model, Wrapped):
        return model
    plain = share_weights(model)
    hooks = take_off(plain)
    original = {wrapped: hf for hf, wrapped in CLASSES.items()}
    for module in plain.modules():
        for name in OF_AN_ENCODER:
            module.__dict__.pop(name, None)
        if type(module) in original:
            module.__class__ = original[type(module)]
        own = module.__dict__.get("config")
        if type(own) in original:
            become(own, original[type(own)])
            own.__dict__.pop("vcc", None)
    put_on(hooks)
    return plain


def become(config: Any, kind: type) -> None:
    """Change a configuration's class; the model type is the class's, whatever file it was loaded from."""
    config.__class__ = kind
    config.__dict__.pop("model_type", None)


def share_weights(model: Model) -> Model:
    """A copy whose parameters and buffers are the very same tensors."""
    check_forwards(model)
    memo = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    return copy.deepcopy(model, memo | put_there(model))
