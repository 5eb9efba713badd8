"""A forward pass recorded as a CUDA graph, and its gradients as another, once the pieces they are made of are compiled:
nothing of Python between them.

A graph replays kernels on the memory they had; it knows nothing of the model. So with each replay we look whether the
model's tensors, modules and hooks are still those that were recorded; if not, we forget the replay and record again.
Code that decides by other things, such as adapters that are switched off, would not be noticed: a model that holds
modules of anyone but torch, transformers and ourselves, or hooks, is not recorded.
"""

import weakref
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vcc.config import VccConfig
from vcc.cuda_graph import record, warm_up, warn_not_recorded
from vcc.errors import UsageError
from vcc.hosts.host import Inputs
from vcc.hosts.pieces import Pieces

KNOWN = ("torch", "transformers", "vcc")  # packages whose modules do what their tensors and sub-modules say
REAL, VIPS = "real tokens", "VIP tokens"  # no names of a forward's arguments
WARM_UP = 2  # runs before recording: compiling, and what libraries do once


class Recorded:
    """`Pieces` for inputs of one shape on a CUDA device. What it gives is overwritten by the next call, and all else
    that is computed on the way by other graphs that share its `memory`."""

    def __init__(self, pieces: Pieces, memory: Any = None) -> None:
        self.pieces, self.memory = pieces, memory
        self.seen: tuple[Any, ...] | None = None
        self.refused = False  # whether recording has failed

    def __call__(
        self, encoder: Any, inputs: Inputs, real: Tensor, vips: Tensor, settings: VccConfig
    ) -> tuple[Tensor, Tensor]:
        given = {**inputs, REAL: real, VIPS: vips}
        if self.seen is not None:
            self.replay(given)
            if self.seen == look(encoder):  # looked at while the device is at work
                return self.output
        if not self.try_record(encoder, given, settings):
            return self.pieces(encoder, inputs, real, vips, settings)
        self.replay(given)
        return self.output

    def try_record(self, encoder: Any, given: dict[str, Any], settings: VccConfig) -> bool:
        """Whether there is something to replay now. What fails once is not tried again."""
        self.seen = None
        if not self.refused:
            try:
                self.record(encoder, given, settings)
                self.seen = look(encoder)
            except RuntimeError as error:  # something waited for the device, or memory is short
                self.refused = True
                warn_not_recorded("a pass is", error)
        return self.seen is not None

    def replay(self, given: dict[str, Any]) -> None:
        for name, place in self.places.items():
            place.copy_(given[name])
        self.graph.replay()

    def record(self, encoder: Any, given: dict[str, Any], settings: VccConfig) -> None:
        self.graph, self.output = record(self.work(encoder, given, settings), WARM_UP, self.memory)

    def work(self, encoder: Any, given: dict[str, Any], settings: VccConfig) -> partial[tuple[Tensor, Tensor]]:
        """What is recorded, with inputs at places of their own."""
        with torch.inference_mode(False):  # what is made in that mode could not be written to outside of it
            values = {name: value.detach().clone() for name, value in given.items() if isinstance(value, Tensor)}
        self.places = values
        self.held = [*encoder.parameters(), *encoder.buffers()]  # a replay reads them, wanted or not
        held = {**given, **self.places}
        real, vips = held.pop(REAL), held.pop(VIPS)
        return partial(self.pieces, encoder, held, real, vips, settings)


class RecordedWithGradients(Recorded):
    """The same for training. A graph has one place for what the backward pass needs of the forward pass: a call whose
    gradients are still to come is not overwritten, the next one runs without a graph."""

    waiting: "weakref.ref[Call] | None" = None  # the last call that was replayed

    def __call__(
        self, encoder: Any, inputs: Inputs, real: Tensor, vips: Tensor, settings: VccConfig
    ) -> tuple[Tensor, Tensor]:
        last = self.waiting() if self.waiting is not None else None
        if last is not None and not last.done:
            return self.pieces(encoder, inputs, real, vips, settings)
        given = {**inputs, REAL: real, VIPS: vips}
        if (self.seen is None or self.seen != look(encoder)) and not self.try_record(encoder, given, settings):
            return self.pieces(encoder, inputs, real, vips, settings)
        sources = [given[name] for name in self.moving]
        hidden = Replay.apply(self, given, *sources, *self.learning)
        return hidden, hidden

    def record(self, encoder: Any, given: dict[str, Any], settings: VccConfig) -> None:
        work = self.work(encoder, given, settings)
        self.moving = [name for name, value in given.items() if isinstance(value, Tensor) and value.requires_grad]
        self.learning = [weights for weights in encoder.parameters() if weights.requires_grad]
        sources = [self.places[name].requires_grad_() for name in self.moving]

        def slopes(hidden: Tensor) -> tuple[Tensor | None, ...]:
            return torch.autograd.grad(hidden, [*sources, *self.learning], self.slope, allow_unused=True)

        def both() -> None:
            hidden = work()[1]
            self.slope = torch.zeros_like(hidden)
            slopes(hidden)

        warm_up(both, WARM_UP)
        self.graph, (_, hidden) = record(work, 0)
        self.back, self.slopes = record(partial(slopes, hidden), 0, self.graph.pool())
        self.hidden = hidden.detach()


class Call:
    """A forward pass that was replayed, for as long as someone may ask for its gradients."""

    done = False


class Replay(torch.autograd.Function):
    """Both graphs, to autograd: what learns goes in, so that its gradients are asked for."""

    @staticmethod
    def forward(ctx: Any, recorded: RecordedWithGradients, given: dict[str, Any], *learning: Tensor) -> Tensor:
        recorded.replay({name: value.detach() if isinstance(value, Tensor) else value for name, value in given.items()})
        ctx.recorded, ctx.call = recorded, Call()
        recorded.waiting = weakref.ref(ctx.call)
        return recorded.hidden.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:
        recorded = ctx.recorded
        if recorded.waiting() is not ctx.call:
            raise UsageError(
                "gradients of a compiled model were asked for a second time, after another call of it: what they need "
                "has been overwritten; call vcc.compile(model, whole=True) for a model that is used so"
            )
        recorded.slope.copy_(slope)
        recorded.back.replay()
        ctx.call.done = True
        return None, None, *(None if part is None else part.clone() for part in recorded.slopes)


def can_record(encoder: Any) -> bool:
    return all(
        type(module).__module__.partition(".")[0] in KNOWN and not hooked(module) and "forward" not in vars(module)
        for module in encoder.modules()
    ) and all(type(part) in (Tensor, torch.nn.Parameter) for part in encoder.parameters())  # as FSDP's are not


def hooked(module: Any) -> bool:
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def look(module: Any) -> tuple[Any, ...]:
    """Where the tensors of a module are and which of them learn, who is in it, and what is hooked to it."""
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
