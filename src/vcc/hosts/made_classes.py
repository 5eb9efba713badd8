"""Classes that are made from Hugging Face's when they are first asked for, and that pickle finds again by name."""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from transformers.utils.output_capturing import _CAN_RECORD_REGISTRY

from vcc.config import Settings


class WithSettings:
    """Mixed into Hugging Face's configurations: `vcc` holds the settings as plain values, however they are given, also
    at load, `from_pretrained(folder, vcc=VccConfig(...))`."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value.to_dict() if name == "vcc" and isinstance(value, Settings) else value)


def keep(module: str, table: dict[type, Any], hf_class: type, wrapped: type) -> Any:
    """Enter a wrapped class into a table, and into a module under a name that pickle finds it by."""
    wrapped.__module__, wrapped.__qualname__ = module, f"Vcc{hf_class.__name__}"
    setattr(sys.modules[module], wrapped.__qualname__, wrapped)
    table[hf_class] = wrapped
    return wrapped


def record_alike(hf_class: Any, wrapped: type) -> None:
    """Hidden states and attentions are recorded as by the untouched model: a model enters itself when it is built, not
    when its class changes."""
    for cls in (hf_class, wrapped):
        _CAN_RECORD_REGISTRY[str(cls)] = hf_class._can_record_outputs


def find(module: str, name: str, register: Callable[[Any], None], families: Iterable[Any]) -> Any:
    """A class that a pickle asks for, maybe of a family that nobody has asked for yet."""
    if name.startswith("Vcc"):
        for family in families:
            register(family)
        made = vars(sys.modules[module])
        if name in made:
            return made[name]
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
