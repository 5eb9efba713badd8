"""Tools that put a `forward` of their own on a module, in the way of the one of its class.

Accelerate moves weights to where they are needed so (`device_map`, `cpu_offload`), and casts the output of a model that
it has prepared. A copy of such a module with another class would run the old class's forward, without a word. So what
accelerate put there is taken off the copy and put on again, around the new class's forward; anything else is refused.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from torch import nn

from vcc.errors import ModelError

ON_INSTANCES = ("forward", "_old_forward", "_original_forward", "_hf_hook", "_is_accelerate_prepared")


def put_there(model: nn.Module) -> dict[int, Any]:
    """All that tools have put on the modules, by id: a deep copy with this as its memo shares it."""
    found = (module.__dict__[name] for module in model.modules() for name in ON_INSTANCES if name in module.__dict__)
    return {id(each): each for each in found}


def check_forwards(model: nn.Module) -> None:
    """Refuse a model with a forward on a module that nobody knows how to put on again."""
    for name, module in model.named_modules():
        if "forward" in module.__dict__ and not {"_hf_hook", "_original_forward"} & module.__dict__.keys():
            raise ModelError(
                f"{type(module).__name__} {name or '(the model itself)'} has a `forward` of its own, in place of its "
                "class's: VCC would never be entered. Take it off, wrap, and put it on again (torch.compile, say)"
            )


def take_off(model: nn.Module) -> Mapping[nn.Module, Any]:
    """Leave the modules with the forward of their class. -> accelerate's hooks, by module."""
    if "_original_forward" in model.__dict__:
        warnings.warn(
            "the model was prepared by accelerate; this one, made of it, is not: pass it to accelerator.prepare",
            stacklevel=4,
        )
    hooks: dict[nn.Module, Any] = {}
    for module in model.modules():
        if "_hf_hook" in module.__dict__:
            hooks[module] = module._hf_hook
        for name in ON_INSTANCES:
            module.__dict__.pop(name, None)
    return hooks


def put_on(hooks: Mapping[nn.Module, Any]) -> None:
    """Accelerate's hooks around the forward that the modules have now. Their weights are where they should be."""
    if not hooks:
        return
    from accelerate.hooks import add_hook_to_module

    for module, hook in hooks.items():
        hook.init_hook = lambda module: module  # would move the weights again
        add_hook_to_module(module, hook)
        del hook.init_hook
