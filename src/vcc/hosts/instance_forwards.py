"""Instance-level forwards, which tools set on a module itself.

Accelerate does this to move weights to where they are needed (`device_map`, `cpu_offload`) and to cast the output of a
prepared model. A copy of such a module with another class would silently run the old class's forward. We remove
accelerate's forwards from the copy and apply them again around the new class's; any other raises.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from torch import nn

from vcc.errors import ModelError

ON_INSTANCES = ("forward", "_old_forward", "_original_forward", "_hf_hook", "_is_accelerate_prepared")


def put_there(model: nn.Module) -> dict[int, Any]:
    """Everything that tools have set on the modules, by id: a deep copy with this memo shares it."""
    found = (module.__dict__[name] for module in model.modules() for name in ON_INSTANCES if name in module.__dict__)
    return {id(each): each for each in found}


def check_forwards(model: nn.Module) -> None:
    """Raise if a module has an instance-level forward that we cannot apply again."""
    for name, module in model.named_modules():
        if "forward" in module.__dict__ and not {"_hf_hook", "_original_forward"} & module.__dict__.keys():
            raise ModelError(
                f"{type(module).__name__} {name or '(the model itself)'} has an instance-level `forward` besides its "
                "class's, which would bypass VCC: remove it, wrap, and apply it again (torch.compile, for example)"
            )


def has_hooks(model: nn.Module) -> bool:
    """Whether the model has hooks of accelerate."""
    return any("_hf_hook" in module.__dict__ for module in model.modules())


def take_off(model: nn.Module) -> Mapping[nn.Module, Any]:
    """Remove instance-level forwards and return accelerate's hooks, by module."""
    if "_original_forward" in model.__dict__:
        warnings.warn(
            "the model was prepared by accelerate, but its wrapped copy is not: pass it to accelerator.prepare",
            stacklevel=5,  # of vcc.wrap's caller
        )
    hooks: dict[nn.Module, Any] = {}
    for module in model.modules():
        if "_hf_hook" in module.__dict__:
            hooks[module] = module._hf_hook
        for name in ON_INSTANCES:
            module.__dict__.pop(name, None)
    return hooks


def put_on(hooks: Mapping[nn.Module, Any]) -> None:
    """Apply accelerate's hooks around the modules' new forwards; weights stay where they are."""
    if not hooks:
        return
    from accelerate.hooks import add_hook_to_module

    for module, hook in hooks.items():
        hook.init_hook = lambda module: module  # it would move the weights again
        add_hook_to_module(module, hook)
        del hook.init_hook
