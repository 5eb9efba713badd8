"""A forward pass and its backward pass, each recorded as a CUDA graph, behind one autograd function.

All training graphs of a model share one buffer. A forward pass before the backward pass of the last one runs without a
graph, so nothing that a backward pass needs is overwritten. A second backward pass raises: the first one reused the
memory of the saved activations.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vcc.config import VccConfig
from vcc.cuda_graph import record, warm_up
from vcc.errors import UsageError
from vcc.hosts.compiled.recorded import WARM_UP, Recorded
from vcc.hosts.forward.request import LongInput


class ReplayedForward:
    """A replayed forward pass; autograd holds it as long as its gradients can be requested."""

    done = False  # whether its backward pass has run


class TrainingMemory:
    """Shared by all training graphs of a model: the memory of their passes, and a buffer for weight gradients."""

    def __init__(self, pool: Any = None) -> None:
        self.pool = pool
        self.last: weakref.ref[ReplayedForward] = weakref.ref(ReplayedForward())  # the last one; here already gone
        self.buffers: dict[tuple[Any, ...], dict[torch.dtype, Tensor]] = {}

    def in_use(self) -> bool:
        """Whether a pending backward pass may still read it."""
        forward = self.last()
        return forward is not None and not forward.done

    def buffer(self, like: Sequence[Tensor]) -> dict[torch.dtype, Tensor]:
        """Flat memory for the gradients of these tensors, one buffer per dtype. Only the last is kept."""
        sizes = Counter[torch.dtype]()
        for one in like:
            sizes[one.dtype] += one.numel()
        key = (like[0].device if like else None, *sizes.items())
        if key not in self.buffers:
            device = like[0].device if like else None
            self.buffers = {key: {dtype: torch.empty(n, dtype=dtype, device=device) for dtype, n in sizes.items()}}
        return self.buffers[key]


class RecordedWithGradients(Recorded):
    """The same for training, with a second graph for the backward pass."""

    def __init__(self, pieces: Any, shared: TrainingMemory, instead: Callable[[], Any] | None = None) -> None:
        super().__init__(pieces, shared.pool, instead)
        self.shared = shared

    def __call__(self, encoder: Any, batch: LongInput, settings: VccConfig) -> tuple[Tensor, Tensor]:
        if self.shared.in_use():
            return self.pieces(encoder, batch, settings)
        return super().__call__(encoder, batch, settings)

    def replay(self, batch: LongInput) -> tuple[Tensor, Tensor]:
        grad_inputs = [batch.inputs[name] for name in self.grad_names]
        hidden: Tensor = ReplayGraphs.apply(self, batch, *grad_inputs, *self.trainable)
        return hidden, hidden

    def record(self, encoder: Any, batch: LongInput, settings: VccConfig) -> None:
        work = self.work(encoder, batch, settings)
        self.grad_names = batch.grad_names
        grad_inputs = [self.static.inputs[name].requires_grad_() for name in self.grad_names]
        weights = [one for one in encoder.parameters() if one.requires_grad]

        def backward(hidden: Tensor) -> tuple[Tensor | None, ...]:
            return torch.autograd.grad(hidden, [*grad_inputs, *weights], self.output_gradient, allow_unused=True)

        def both() -> None:
            hidden = work()[1]
            self.output_gradient = torch.zeros_like(hidden)
            found = zip(weights, backward(hidden)[len(grad_inputs) :], strict=True)
            self.trainable = [one for one, gradient in found if gradient is not None]

        warm_up(both, WARM_UP)
        self.buffer, self.slots = self.shared.buffer(self.trainable), slots(self.trainable)

        def backward_into_buffer(hidden: Tensor) -> tuple[Tensor | None, ...]:
            """-> the gradients of the inputs; those of the weights are in the buffer."""
            found = backward(hidden)
            gradients = [gradient for gradient in found[len(grad_inputs) :] if gradient is not None]
            if gradients:
                torch._foreach_copy_(views(self.buffer, self.slots), gradients)
            return found[: len(grad_inputs)]

        self.graph, (_, hidden) = record(work, 0, self.memory)
        self.backward_graph, self.input_gradients = record(partial(backward_into_buffer, hidden), 0, self.graph.pool())
        self.hidden = hidden.detach()

    def gradients(self) -> tuple[Tensor | None, ...]:
        """Copies of the last replay's gradients: of the inputs, then of the weights."""
        of_inputs = (None if gradient is None else gradient.clone() for gradient in self.input_gradients)
        copied = {dtype: values.clone() for dtype, values in self.buffer.items()}
        return *of_inputs, *views(copied, self.slots)


@dataclass(frozen=True)
class Slot:
    """The place of a tensor in the flat buffer of its dtype."""

    dtype: torch.dtype
    shape: torch.Size
    strides: tuple[int, ...]
    offset: int


def slots(like: Sequence[Tensor]) -> list[Slot]:
    """Slots for contiguous tensors of these shapes and dtypes, in order."""
    offsets, found = Counter[torch.dtype](), []
    for one in like:
        strides = torch.empty(one.shape, device="meta").stride()
        found.append(Slot(one.dtype, one.shape, strides, offsets[one.dtype]))
        offsets[one.dtype] += one.numel()
    return found


def views(buffer: dict[torch.dtype, Tensor], where: Sequence[Slot]) -> list[Tensor]:
    return [buffer[slot.dtype].as_strided(slot.shape, slot.strides, slot.offset) for slot in where]


class ReplayGraphs(torch.autograd.Function):
    """Both graphs as an autograd function of `sources`, the inputs and weights that may need gradients."""

    @staticmethod
    def forward(ctx: Any, recorded: RecordedWithGradients, batch: LongInput, *sources: Tensor) -> Tensor:
        recorded.static.copy_(batch)
        recorded.graph.replay()
        ctx.recorded, ctx.call = recorded, ReplayedForward()
        recorded.shared.last = weakref.ref(ctx.call)
        return recorded.hidden.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        recorded, call = ctx.recorded, ctx.call
        if call.done or recorded.shared.last() is not call:
            raise UsageError(
                "second backward pass through a compiled model: its activations have been overwritten; compute "
                "all gradients in one backward pass, or do not compile the model"
            )
        recorded.output_gradient.copy_(gradient)
        recorded.backward_graph.replay()
        call.done = True
        return None, None, *recorded.gradients()
