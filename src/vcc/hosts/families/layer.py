"""Encoder layers that run VCC's work between their own hooks.

Sharding, offloading, gradient checkpointing and hooks of users all live in a layer's `__call__`. So we enter layers
through it, and hand it what to run in place of Hugging Face's forward.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, distributed, nn

SHARDED: tuple[type, ...] = ()
if distributed.is_available():  # not in every build of PyTorch
    from torch.distributed.fsdp import FSDPModule

    SHARDED = (FSDPModule,)


class HookedLayer:
    """Mixed into Hugging Face's layer classes: `layer(hidden, instead=run)` gives run(hidden), after the hooks before
    the layer and before those behind it; without `instead` the layer is as it was."""

    def forward(self, *args: Any, instead: Callable[..., Tensor] | None = None, **kwargs: Any) -> Any:
        if instead is not None:
            return instead(*args)
        return super().forward(*args, **kwargs)  # type: ignore[misc]


def with_parameters(layer: nn.Module, run: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """run(*tensors), which uses parameters of the layer but is not the layer's own pass: its hooks are left alone,
    except where the parameters are sharded, because only a call gathers them. FSDP learns from the tensors when the
    gradients of the parameters are complete, so every tensor with a gradient has to be among them."""
    if isinstance(layer, SHARDED):
        return nn.Module.__call__(layer, *tensors, instead=run)  # not checkpointed
    return run(*tensors)
