"""Wrapped classes, made from Hugging Face's when a family is first used: their table, and changing objects' classes."""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from transformers.utils.output_capturing import _CAN_RECORD_REGISTRY

from vcc.config import Settings

# Hugging Face class -> wrapped class, for configurations, models and layers; filled by `vcc.hosts.register`.
CLASSES: dict[type, type] = {}


class WithSettings:
    """Mixed into Hugging Face's configurations: `vcc` always holds the settings as plain values, including those given
    at load, `from_pretrained(folder, vcc=VccConfig(...))`."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value.to_dict() if name == "vcc" and isinstance(value, Settings) else value)


def keep(module: str, table: dict[type, Any], hf_class: type, wrapped: type) -> Any:
    """Enter a wrapped class into a table, and into a module under the name that pickle uses."""
    wrapped.__module__, wrapped.__qualname__ = module, f"Vcc{hf_class.__name__}"
    setattr(sys.modules[module], wrapped.__qualname__, wrapped)
    table[hf_class] = wrapped
    return wrapped


def record_alike(hf_class: Any, wrapped: type) -> None:
    """Record hidden states and attentions like the untouched model: models register when they are built, not when their
    class changes."""
    for cls in (hf_class, wrapped):
        _CAN_RECORD_REGISTRY[str(cls)] = hf_class._can_record_outputs


def find(module: str, name: str, register: Callable[[Any], None], families: Iterable[Any]) -> Any:
    """A class by its name, for pickle; its family is registered first if needed."""
    if name.startswith("Vcc"):
        for family in families:
            register(family)
        made = vars(sys.modules[module])
        if name in made:
            return made[name]
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def change_class(value: Any, classes: Mapping[type, type]) -> bool:
    """Change the class of a module or configuration by the table. -> whether the table has one."""
    new = classes.get(type(value))
    if new is None:
        return False
    value.__class__ = new
    value.__dict__.pop("model_type", None)  # the class's own, whatever the file says
    return True


def wrap_configs(model: Any, classes: Mapping[type, type], settings: Settings) -> list[Any]:
    """Turn the configurations inside a model into wrapped ones with these settings, and return them."""
    changed = [config for config in configs(model) if change_class(config, classes)]
    for config in changed:
        config.vcc = settings
    return changed


def restore_classes(model: Any, classes: Mapping[type, type]) -> None:
    """Restore Hugging Face's classes of modules and configurations."""
    original = {ours: hf_class for hf_class, ours in classes.items()}
    for module in model.modules():
        change_class(module, original)
    for config in configs(model):
        if change_class(config, original):
            config.__dict__.pop("vcc", None)


def configs(model: Any) -> list[Any]:
    """The distinct configurations of a model's modules."""
    held = [module.__dict__.get("config") for module in model.modules()]
    return list({id(config): config for config in held if config is not None}.values())
