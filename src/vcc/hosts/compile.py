"""`vcc.compile`: the compressed path as compiled graphs, shared by inputs of similar length."""

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
from vcc.hosts.host import Inputs
from vcc.hosts.long_input import LongInputEncoder, find_encoder
from vcc.hosts.pieces import Pieces, compiled
from vcc.hosts.recorded import Recorded, RecordedWithGradients, Turns, can_record

Model = TypeVar("Model", bound=PreTrainedModel)
log = logging.getLogger("vcc")

USED = ("input_ids", "inputs_embeds", "position_ids", "token_type_ids")  # of a forward's arguments, beside the masks
MOVED = "vcc_moved"  # an attribute of gradients
LAUNCH_BOUND = 32_768  # tokens in a batch up to which launching kernels costs more than running them


@dataclass
class CompiledGraphs:
    """One graph per bucket of length and of VIP number. Inputs are padded up to their bucket, so that lengths and
    numbers of VIPs that differ a little share a graph; padding never changes a result."""

    whole: bool | None = None  # one graph of all layers, or a graph of each kind of layer; None: what fits
    graphs: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    seconds: dict[tuple[Any, ...], float] = field(default_factory=dict)  # what each bucket's first call took
    memory: Any = None  # of all recorded graphs without gradients: they run one after the other
    turns: Turns | None = None  # of those with gradients

    def __getstate__(self) -> dict[str, Any]:
        """A copy or a pickle of a compiled model is compiled anew when it is first called."""
        return {"whole": self.whole, "graphs": {}, "seconds": {}, "memory": None, "turns": None}

    def __call__(self, encoder: LongInputEncoder, inputs: Inputs, real: Tensor, vips: Tensor) -> Tensor:
        settings, n = encoder.vcc_settings, real.shape[1]
        length = length_bucket(n, settings.window)
        if settings.max_vips is None:
            most = int(vips.sum(1).max())  # waits for the device once; set max_vips to avoid it
            settings = replace(settings, max_vips=min(length, -(-most // 32) * 32))
        given = {name: inputs[name] for name in USED if inputs.get(name) is not None}
        tensors = {name: padded(value, n, length, pad_value(encoder, name)) for name, value in given.items()}
        key = (real.shape[0], length, settings.max_vips, encoder.training, torch.is_grad_enabled())
        cast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        known = (*key, *((name, value.dtype) for name, value in tensors.items()), cast)
        new = known not in self.graphs
        if new:
            self.graphs[known] = self.graph(encoder, real.is_cuda and real.shape[0] * length <= LAUNCH_BOUND)
        start = time.perf_counter()
        graph = self.graphs[known]
        masks = padded(real, n, length, 0), padded(vips, n, length, 0)
        with kept_with_gradients() if new else nullcontext():
            _, last = graph(encoder, tensors, *masks, settings)
        if new:
            self.seconds[key] = time.perf_counter() - start
            log.info("compiled %d x %d tokens in %.1f s", real.shape[0], length, self.seconds[key])
        return last[:, :n].clone()  # a replayed graph writes its output to the same place every time

    def graph(self, encoder: LongInputEncoder, launch_bound: bool) -> Any:
        """What its first call will compile. Where launching kernels costs more than running them, a CUDA graph launches
        all of them: of pieces we make it, of a whole graph the compiler. Pieces that cannot be recorded would be slow:
        unless they were asked for, a whole graph takes their place."""
        recorded = launch_bound and can_record(encoder)
        learning = torch.is_grad_enabled()
        if self.whole or (self.whole is None and not recorded):
            whole = compiled(LongInputEncoder.encode_inputs, mode="reduce-overhead" if launch_bound else None)
            return MovesGradients(whole) if learning and launch_bound else whole
        if not recorded:
            return Pieces()
        instead = partial(compiled, LongInputEncoder.encode_inputs) if self.whole is None else None
        if learning:
            self.turns = self.turns or Turns(torch.cuda.graph_pool_handle())
            return RecordedWithGradients(Pieces(tuned=False), self.turns, instead)
        if self.memory is None:
            self.memory = torch.cuda.graph_pool_handle()
        return Recorded(Pieces(tuned=False), self.memory, instead)


@dataclass(frozen=True)
class MovesGradients:
    """A graph of the compiler's for training. It writes gradients to the same memory with every call, and autograd
    takes them as they are: where they add up over calls, what is there must be moved away before the next one."""

    run: Any

    def __call__(self, encoder: Any, *given: Any) -> Any:
        for weights in encoder.parameters():
            if weights.grad is not None and not hasattr(weights.grad, MOVED):
                weights.grad = weights.grad.clone()
                setattr(weights.grad, MOVED, True)  # more is added to this very tensor
        return self.run(encoder, *given)


def compile(model: Model, whole: bool | None = None) -> Model:
    """Compile the compressed path of a wrapped model, in place. The first call with a new bucket of lengths takes
    seconds to a minute; `vcc.compile_seconds(model)` tells. Hidden states of all layers and reports stay eager.

    `whole` makes one graph of all layers. False: one layer of each kind is compiled and called for the others, in less
    than half of the time. None: that is done where nothing is lost by it, for short inputs on a CUDA device. What was
    compiled is kept in the user's cache folder, where the next process finds it, unless TORCHINDUCTOR_CACHE_DIR says
    where.
    """
    with suppress(RuntimeError):  # the user has no home: then where torch keeps it by itself
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
    find_encoder(model).compiled_graphs = CompiledGraphs(whole)
    return model


def kept_with_gradients() -> Any:
    """The compiler keeps what it has traced for the next process, but unless told so not where a gradient is written by
    hand (`torch.autograd.Function`), as some of ours are. What it is kept under holds both passes of such functions."""
    config: Any = torch._functorch.config
    name = "autograd_cache_allow_custom_autograd_functions"
    return config.patch(name, True) if hasattr(config, name) else nullcontext()


def compile_seconds(model: Any) -> dict[tuple[Any, ...], float]:
    """What the first call of each bucket took, by (batch, length, VIPs, training, gradients)."""
    compiled = find_encoder(model).compiled_graphs
    return dict(compiled.seconds) if isinstance(compiled, CompiledGraphs) else {}


def length_bucket(n: int, window: int) -> int:
    """n rounded up to whole windows, and from 16 windows on to a sixteenth of its size: at most 1/16 is wasted."""
    step = window
    while step * 16 < n:
        step *= 2
    return -(-n // step) * step


def padded(value: Any, n: int, length: int, fill: int) -> Any:
    """A tensor over n tokens as one over `length`; anything else as it is."""
    if not isinstance(value, Tensor) or value.ndim < 2 or value.shape[1] != n or length == n:
        return value
    if value.ndim == 3:
        return F.pad(value, (0, 0, 0, length - n))
    return F.pad(value, (0, length - n), value=fill)


def pad_value(encoder: LongInputEncoder, name: str) -> int:
    return (getattr(encoder.config, "pad_token_id", None) or 0) if name == "input_ids" else 0
