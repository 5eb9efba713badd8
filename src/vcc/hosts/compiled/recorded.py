"""A forward pass recorded as a CUDA graph, once its pieces are compiled: no Python between their kernels.

A graph replays kernels on fixed memory. Each replay checks that the model's tensors, modules and hooks are those that
were recorded; if not, the graph is dropped and recorded again. Changes in anything else, such as disabled adapters,
would go unnoticed, so models with hooks, or with modules of packages other than torch, transformers and ours, are not
recorded.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vcc.config import VccConfig
from vcc.cuda_graph import record, warn_not_recorded
from vcc.hosts.forward.request import LongInput

KNOWN = ("torch", "transformers", "vcc")  # packages whose modules depend only on their tensors and sub-modules
WARM_UP = 2  # runs before recording, for compilation and one-time library setup


class Recorded:
    """A compiled `LongInputEncoder.encode_inputs`, such as `CompiledPieces`, for inputs of one shape on a CUDA device.
    Its output is overwritten by the next call; intermediate values also by other graphs that share its `memory`."""

    def __init__(self, pieces: Any, memory: Any = None, instead: Callable[[], Any] | None = None) -> None:
        """`instead` makes the replacement if recording fails; by default the pieces run, mostly waiting for Python."""
        self.pieces, self.memory, self.instead = pieces, memory, instead
        self.seen: tuple[Any, ...] | None = None  # the model that was recorded, see `look`
        self.failed = False  # do not try again

    def __call__(self, encoder: Any, batch: LongInput, settings: VccConfig) -> tuple[Tensor, Tensor]:
        if self.seen is not None:
            output = self.replay(batch)
            if self.seen == look(encoder):  # while the device is at work
                return output
        if not self.try_record(encoder, batch, settings):
            return self.pieces(encoder, batch, settings)
        return self.replay(batch)

    def try_record(self, encoder: Any, batch: LongInput, settings: VccConfig) -> bool:
        """Whether there is a graph to replay now."""
        self.seen = None
        if not self.failed:
            try:
                self.record(encoder, batch, settings)
                self.seen = look(encoder)
            except RuntimeError as error:  # an operation waited for the device, or memory is short
                self.failed = True
                self.pieces = self.instead() if self.instead else self.pieces
                warn_not_recorded("a pass is", error)
        return self.seen is not None

    def record(self, encoder: Any, batch: LongInput, settings: VccConfig) -> None:
        self.graph, self.output = record(self.work(encoder, batch, settings), WARM_UP, self.memory)

    def replay(self, batch: LongInput) -> tuple[Tensor, Tensor]:
        self.static.copy_(batch)
        self.graph.replay()
        return self.output

    def work(self, encoder: Any, batch: LongInput, settings: VccConfig) -> partial[tuple[Tensor, Tensor]]:
        """The work to record, on static input tensors that every replay reads."""
        with torch.inference_mode(False):  # inference tensors cannot be written to outside of that mode
            self.static = batch.map(lambda tensor: tensor.detach().clone())
        self.held = [*encoder.parameters(), *encoder.buffers()]  # a replay reads them even if the model drops them
        return partial(self.pieces, encoder, self.static, settings)


def can_record(encoder: Any) -> bool:
    return all(
        type(module).__module__.partition(".")[0] in KNOWN and not hooked(module) and "forward" not in vars(module)
        for module in encoder.modules()
    ) and all(type(part) in (Tensor, torch.nn.Parameter) for part in encoder.parameters())  # FSDP has its own types


def hooked(module: Any) -> bool:
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def look(module: Any) -> tuple[Any, ...]:
    """What a recording depends on: modules, addresses of tensors, which are trainable, and hooks."""
    found: list[Any] = []
    waiting = [module]
    while waiting:
        one = waiting.pop()
        found.append(id(one))
        if hooked(one):
            found.append("hooks")
        for part in one._parameters.values():
            if part is not None:
                found += [part.data_ptr(), part.requires_grad]
        found += [part.data_ptr() for part in one._buffers.values() if part is not None]
        waiting += [part for part in one._modules.values() if part is not None]
    return tuple(found)
