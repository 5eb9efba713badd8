"""Encoder layers that run VCC's work between their own hooks.

Sharding, offloading, gradient checkpointing and hooks of users all live in a layer's `__call__`. So we enter layers
through it, and hand it what to run in place of Hugging Face's forward.
"""

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class HookedLayer:
    """Mixed into Hugging Face's layer classes: `layer(hidden, instead=run)` gives run(hidden), after the hooks before
    the layer and before those behind it; without `instead` the layer is as it was."""

    def forward(self, *args: Any, instead: Callable[..., Tensor] | None = None, **kwargs: Any) -> Any:
        if instead is not None:
            return instead(*args)
        return super().forward(*args, **kwargs)  # type: ignore[misc]


def is_sharded(layer: nn.Module) -> bool:
    """Whether FSDP holds a layer's parameters. A process that has not imported FSDP, which takes long, has no such
    layer."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(layer, fsdp.FSDPModule)


def with_parameters(layer: nn.Module, run: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """run(*tensors), which uses parameters of the layer but is not the layer's own pass: its hooks are left alone,
    except where the parameters are sharded, because only a call gathers them. FSDP learns from the tensors when the
    gradients of the parameters are complete, so every tensor with a gradient has to be among them."""
    if is_sharded(layer):
        return nn.Module.__call__(layer, *tensors, instead=run)  # not checkpointed
    return run(*tensors)
