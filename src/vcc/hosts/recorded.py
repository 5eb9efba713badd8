"""A forward pass recorded as a CUDA graph, and its gradients as another, once what they are made of is compiled:
nothing of Python between their kernels.

A graph replays kernels on the memory they had; it knows nothing of the model. So with each replay we look whether the
model's tensors, modules and hooks are still those that were recorded; if not, we forget the replay and record again.
Code that decides by other things, such as adapters that are switched off, would not be noticed: a model that holds
modules of anyone but torch, transformers and ourselves, or hooks, is not recorded.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vcc.config import VccConfig
from vcc.cuda_graph import record, warm_up, warn_not_recorded
from vcc.errors import UsageError
from vcc.hosts.host import Inputs

KNOWN = ("torch", "transformers", "vcc")  # packages whose modules do what their tensors and sub-modules say
REAL, VIPS = "real tokens", "VIP tokens"  # no names of a forward's arguments
WARM_UP = 2  # runs before recording: compiling, and what libraries do once


class Recorded:
    """A compiled `LongInputEncoder.encode_inputs`, such as `Pieces`, for inputs of one shape on a CUDA device. What it
    gives is overwritten by the next call, and all else that is computed on the way by other graphs that share its
    `memory`."""

    def __init__(self, pieces: Any, memory: Any = None, instead: Callable[[], Any] | None = None) -> None:
        """`instead` makes what runs where recording fails: many pieces one by one are mostly Python. Unless given, they
        run so."""
        self.pieces, self.memory, self.instead = pieces, memory, instead
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
                self.pieces = self.instead() if self.instead else self.pieces
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


class Turns:
    """What the graphs with gradients of one model use by turns: the memory of their passes, and one place for the
    gradients of all weights. `waiting` is the last call that was replayed: its gradients may still be asked for."""

    def __init__(self, memory: Any = None) -> None:
        self.memory = memory
        self.waiting: weakref.ref[Call] = weakref.ref(Call())
        self.places: dict[tuple[Any, ...], dict[torch.dtype, Tensor]] = {}

    def taken(self) -> bool:
        call = self.waiting()
        return call is not None and not call.done

    def place(self, like: Sequence[Tensor]) -> dict[torch.dtype, Tensor]:
        """Room for gradients, flat, of each type of number."""
        sizes = Counter[torch.dtype]()
        for one in like:
            sizes[one.dtype] += one.numel()
        key = (like[0].device if like else None, *sizes.items())
        if key not in self.places:
            self.places = {key: {kind: torch.empty(n, dtype=kind, device=like[0].device) for kind, n in sizes.items()}}
        return self.places[key]


class Call:
    """A forward pass that was replayed, for as long as someone may ask for its gradients."""

    done = False


class RecordedWithGradients(Recorded):
    """The same for training. There is one place for what the backward pass needs of the forward pass: a call whose
    gradients are still to come is not overwritten, the next one runs without a graph."""

    def __init__(self, pieces: Any, turns: Turns, instead: Callable[[], Any] | None = None) -> None:
        super().__init__(pieces, turns.memory, instead)
        self.turns = turns

    def __call__(
        self, encoder: Any, inputs: Inputs, real: Tensor, vips: Tensor, settings: VccConfig
    ) -> tuple[Tensor, Tensor]:
        if self.turns.taken():
            return self.pieces(encoder, inputs, real, vips, settings)
        given = {**inputs, REAL: real, VIPS: vips}
        if self.seen is not None:
            hidden = self.replay_for_gradients(given)
            if self.seen == look(encoder):  # looked at while the device is at work
                return hidden, hidden
        if not self.try_record(encoder, given, settings):
            return self.pieces(encoder, inputs, real, vips, settings)
        hidden = self.replay_for_gradients(given)
        return hidden, hidden

    def replay_for_gradients(self, given: dict[str, Any]) -> Tensor:
        hidden: Tensor = Replay.apply(self, given, *(given[name] for name in self.moving), *self.learning)
        return hidden

    def record(self, encoder: Any, given: dict[str, Any], settings: VccConfig) -> None:
        work = self.work(encoder, given, settings)
        self.moving = [name for name, value in given.items() if isinstance(value, Tensor) and value.requires_grad]
        weights = [one for one in encoder.parameters() if one.requires_grad]
        sources = [self.places[name].requires_grad_() for name in self.moving]

        def slopes(hidden: Tensor) -> tuple[Tensor | None, ...]:
            return torch.autograd.grad(hidden, [*sources, *weights], self.slope, allow_unused=True)

        def both() -> None:
            hidden = work()[1]
            self.slope = torch.zeros_like(hidden)
            found = zip(weights, slopes(hidden)[len(sources) :], strict=True)
            self.learning = [one for one, slope in found if slope is not None]

        warm_up(both, WARM_UP)
        self.flat, self.cuts = self.turns.place(self.learning), cuts(self.learning)

        def slopes_in_place(hidden: Tensor) -> tuple[Tensor | None, ...]:
            found = slopes(hidden)
            learned = [slope for slope in found[len(sources) :] if slope is not None]
            if learned:
                torch._foreach_copy_(parts(self.flat, self.cuts), learned)
            return found[: len(sources)]

        self.graph, (_, hidden) = record(work, 0, self.memory)
        self.back, self.slopes = record(partial(slopes_in_place, hidden), 0, self.graph.pool())
        self.hidden = hidden.detach()

    def gradients(self) -> tuple[Tensor | None, ...]:
        """Of what came in and of the weights, as the last replay left them, in memory of their own."""
        moved = (None if slope is None else slope.clone() for slope in self.slopes)
        flat = {kind: values.clone() for kind, values in self.flat.items()}
        return *moved, *parts(flat, self.cuts)


Cut = tuple[torch.dtype, torch.Size, tuple[int, ...], int]  # whose shape and strides begin so far into the numbers


def cuts(like: Sequence[Tensor]) -> list[Cut]:
    """Where tensors of these shapes and types stand, one after the other, in flat numbers of each type."""
    begins, found = Counter[torch.dtype](), []
    for one in like:
        found.append((one.dtype, one.shape, torch.empty(one.shape, device="meta").stride(), begins[one.dtype]))
        begins[one.dtype] += one.numel()
    return found


def parts(flat: dict[torch.dtype, Tensor], where: Sequence[Cut]) -> list[Tensor]:
    return [flat[kind].as_strided(shape, strides, begin) for kind, shape, strides, begin in where]


class Replay(torch.autograd.Function):
    """Both graphs, to autograd: what learns goes in, so that its gradients are asked for."""

    @staticmethod
    def forward(ctx: Any, recorded: RecordedWithGradients, given: dict[str, Any], *learning: Tensor) -> Tensor:
        recorded.replay({name: value.detach() if isinstance(value, Tensor) else value for name, value in given.items()})
        ctx.recorded, ctx.call = recorded, Call()
        recorded.turns.waiting = weakref.ref(ctx.call)
        return recorded.hidden.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:
        recorded, call = ctx.recorded, ctx.call
        if call.done or recorded.turns.waiting() is not call:
            raise UsageError(
                "gradients of a compiled model were asked for a second time: what they need has been overwritten; ask "
                "for all of them at once, or do not compile a model that is used so"
            )
        recorded.slope.copy_(slope)
        recorded.back.replay()
        call.done = True
        return None, None, *recorded.gradients()


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
