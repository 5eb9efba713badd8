"""`vcc.compile`: compiled graphs of the compressed path, shared by inputs of similar length."""

import logging
import os
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import torch
import torch._functorch.config
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from vcc.files import cache_folder
from vcc.hosts.compiled.pieces import CompiledPieces, compiled
from vcc.hosts.compiled.recorded import Recorded, can_record
from vcc.hosts.compiled.recorded_training import RecordedWithGradients, TrainingMemory
from vcc.hosts.forward.encoder import LongInputEncoder
from vcc.hosts.forward.request import LongInput
from vcc.hosts.forward.wrapped import state_of

Model = TypeVar("Model", bound=PreTrainedModel)
log = logging.getLogger("vcc")

USED = ("input_ids", "inputs_embeds", "position_ids", "token_type_ids")  # of a forward's arguments, beside the masks
MOVED = "vcc_moved"  # an attribute of gradients
LAUNCH_BOUND = 32_768  # tokens in a batch up to which launching kernels costs more than running them
UNTUNED = {"triton.autotune_pointwise": False}  # trying several versions of each kernel pays for long inputs only


@dataclass
class CompiledGraphs:
    """One graph per bucket of length and of VIP number. Inputs are padded up to their bucket, and lengths and numbers
    of VIPs that differ a little share a graph; padding never changes a result."""

    whole: bool | None = None  # one graph of all layers, or one of each kind of layer; None: by length and device
    graphs: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    seconds: dict[tuple[Any, ...], float] = field(default_factory=dict)  # of each bucket's first call
    memory: Any = None  # of all recorded graphs without gradients: they run sequentially
    training_memory: TrainingMemory | None = None  # of those with gradients

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or pickle of a compiled model is compiled again at its first call."""
        return type(self), (self.whole,)

    def __call__(self, encoder: LongInputEncoder, batch: LongInput) -> Tensor:
        """The last hidden states (B, n, D)."""
        settings, (size, n) = encoder.vcc_state.settings, batch.real.shape
        length = length_bucket(n, settings.window)
        if settings.max_vips is None:
            most = int(batch.vips.sum(1).max())  # waits for the device once; set max_vips to avoid it
            settings = replace(settings, max_vips=min(length, -(-most // 32) * 32))
        padded = pad(batch, length, getattr(encoder.config, "pad_token_id", None) or 0)
        bucket = (size, length, settings.max_vips, encoder.training, torch.is_grad_enabled())
        cast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        kinds = ((name, value.dtype, value.requires_grad) for name, value in padded.inputs.items())
        openings = encoder.vcc_state.openings
        key = (
            *bucket,
            *kinds,
            cast,
            openings is not None,
            settings,
        )  # a recorded graph would not notice other settings
        new = key not in self.graphs
        if new:
            if openings is None:
                self.graphs[key] = self.graph(encoder, batch.real.is_cuda and size * length <= LAUNCH_BOUND)
            else:
                self.graphs[key] = CompiledPieces()  # only these give away what they opened
        start = time.perf_counter()
        with kept_with_gradients() if new else nullcontext():
            also = () if openings is None else (openings,)
            _, last = self.graphs[key](encoder, padded, settings, *also)
        if new:
            self.seconds[bucket] = time.perf_counter() - start
            log.info("compiled %d x %d tokens in %.1f s", size, length, self.seconds[bucket])
        return last[:, :n].clone()  # a replayed graph writes its output to the same place every time

    def graph(self, encoder: LongInputEncoder, launch_bound: bool) -> Any:
        """What the first call compiles.

        If launching kernels costs more than running them, a CUDA graph launches all of them: we record pieces, the
        compiler records whole graphs. Pieces that cannot be recorded are slow, so a whole graph replaces them unless
        pieces were requested.
        """
        recorded = launch_bound and can_record(encoder)
        training = torch.is_grad_enabled()
        if self.whole or (self.whole is None and not recorded):
            whole = compiled(LongInputEncoder.encode_inputs, mode="reduce-overhead" if launch_bound else None)
            return MovesGradients(whole) if training and launch_bound else whole
        if not recorded:
            return CompiledPieces()
        pieces = CompiledPieces(options=UNTUNED)
        instead = partial(compiled, LongInputEncoder.encode_inputs) if self.whole is None else None
        if training:
            self.training_memory = self.training_memory or TrainingMemory(torch.cuda.graph_pool_handle())
            return RecordedWithGradients(pieces, self.training_memory, instead)
        if self.memory is None:
            self.memory = torch.cuda.graph_pool_handle()
        return Recorded(pieces, self.memory, instead)


@dataclass(frozen=True)
class MovesGradients:
    """A training graph recorded by the compiler. Each call writes gradients to the same memory, and autograd keeps them
    there: if gradients accumulate over calls, they must be moved before the next one."""

    run: Any

    def __call__(self, encoder: Any, *given: Any) -> Any:
        for weights in encoder.parameters():
            if weights.grad is not None and not hasattr(weights.grad, MOVED):
                weights.grad = weights.grad.clone()
                setattr(weights.grad, MOVED, True)  # later gradients are added to this tensor
        return self.run(encoder, *given)


def compile(model: Model, whole: bool | None = None) -> Model:
    """Compile the compressed path of a wrapped model, in place. The first call with a new bucket of lengths takes
    seconds to a minute, see `vcc.compile_seconds(model)`. Hidden states of all layers and reports stay eager.

    `whole=True` makes one graph of all layers. `whole=False` compiles one layer of each kind and calls it for the
    others, in less than half of the time. By default short inputs on a CUDA device, which lose nothing, are
    compiled this way. Compiled code is kept in the user's cache folder for the next process, or in
    TORCHINDUCTOR_CACHE_DIR if that is set.
    """
    with suppress(RuntimeError):  # without a home directory torch chooses the folder
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
    state_of(model).graphs = CompiledGraphs(whole)
    return model


def kept_with_gradients() -> Any:
    """torch.compile does not cache graphs with custom autograd functions, such as ours, by default. We enable it: the
    cache key contains both passes of such a function."""
    config: Any = torch._functorch.config
    name = "autograd_cache_allow_custom_autograd_functions"
    return config.patch(name, True) if hasattr(config, name) else nullcontext()


def compile_seconds(model: Any) -> dict[tuple[Any, ...], float]:
    """Seconds of the first call of each bucket, by (batch, length, VIPs, training, gradients)."""
    graphs = state_of(model).graphs
    return dict(graphs.seconds) if isinstance(graphs, CompiledGraphs) else {}


def length_bucket(n: int, window: int) -> int:
    """n rounded up to whole windows, and from 16 windows on to a sixteenth of its size: at most 1/16 is wasted."""
    step = window
    while step * 16 < n:
        step *= 2
    return -(-n // step) * step


def pad(batch: LongInput, length: int, pad_id: int) -> LongInput:
    """The inputs of the embeddings and the masks, padded to `length` tokens."""
    n = batch.real.shape[1]
    inputs = {
        name: pad_tokens(value, n, length, pad_id if name == "input_ids" else 0)
        for name in USED
        if isinstance(value := batch.inputs.get(name), Tensor)
    }
    return LongInput(inputs, pad_tokens(batch.real, n, length), pad_tokens(batch.vips, n, length))


def pad_tokens(value: Tensor, n: int, length: int, fill: int = 0) -> Tensor:
    """A tensor over n tokens padded to `length`; any other unchanged."""
    if value.ndim < 2 or value.shape[1] != n or length == n:
        return value
    if value.ndim == 3:
        return F.pad(value, (0, 0, 0, length - n))
    return F.pad(value, (0, length - n), value=fill)
