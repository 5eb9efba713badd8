"""`wrap` and `unwrap` for encoders: the same weights as a VCC model and as the untouched one."""

import weakref
from typing import Any, TypeVar

from transformers import PreTrainedModel

from vcc.config import VccConfig
from vcc.errors import ModelError
from vcc.hosts.changed_copy import changed_copy
from vcc.hosts.forward.encoder import find_encoder
from vcc.hosts.forward.special_ids import note_special_ids
from vcc.hosts.forward.wrapped import SHARED, Wrapped, install
from vcc.hosts.instance_forwards import has_hooks
from vcc.hosts.made_classes import CLASSES, change_class, restore_classes, wrap_configs
from vcc.hosts.register import known_classes, register_type

Model = TypeVar("Model", bound=PreTrainedModel)


def wrap(model: Model, config: VccConfig, max_length: int | None = None, tokenizer: Any = None) -> Model:
    """Return a model that reads long inputs and shares its weights with `model`, which is not changed.

    Sharing is permanent: training one trains the other, and `.half()` or `.to(device)` on one changes the other too. To
    avoid that, wrap a copy: `wrap(copy.deepcopy(model))`. `max_length` extends learned positions by repeating them;
    each can then be trained separately. Without it they repeat as they are. `tokenizer` provides the mask token and the
    separator, for a model that was not loaded from its tokenizer's folder. A wrapped model gets the new settings.
    """
    model = unwrap(model)
    register_type(getattr(getattr(model, "config", None), "model_type", None))
    if type(model) not in CLASSES:
        known = ", ".join(known_classes())
        raise TypeError(f"cannot wrap {type(model).__name__}; the classes that can be wrapped are {known}")
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length={max_length}: it must be a positive number of tokens")
    if max_length is not None and has_hooks(model):
        raise ModelError(
            f"max_length={max_length}: positions cannot be added to offloaded weights; wrap before offloading"
        )

    def change(copied: Any) -> None:
        for changed in wrap_configs(copied, CLASSES, config):
            if tokenizer is not None:
                note_special_ids(changed, tokenizer)
        change_class(copied, CLASSES)
        install(copied)
        if max_length is not None:
            find_encoder(copied).host.extend(copied, max_length)

    wrapped = changed_copy(model, change)
    SHARED[wrapped] = weakref.ref(model)
    return wrapped


def unwrap(model: Model) -> Model:
    """Return the untouched Hugging Face model, which shares its weights; other models are returned as they are."""

    def change(copied: Any) -> None:
        del find_encoder(copied).vcc_state
        restore_classes(copied, CLASSES)

    return changed_copy(model, change) if isinstance(model, Wrapped) else model
