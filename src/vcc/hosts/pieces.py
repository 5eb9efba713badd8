"""A forward pass compiled in pieces: what comes before the layers, a window layer, the tree, a compressed layer, the
end.

The layers of a model differ in their weights only, and a compiled function takes the weights it is called with. So one
window layer and one compressed layer are compiled and called for all others, however many there are. What is lost is
what a compiler gains by seeing all layers at once: one CUDA graph, and nothing of Python between them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from vcc.config import VccConfig
from vcc.core.rows import Rows
from vcc.core.state import Compressed, Windowed
from vcc.encode import Host, layer_on_windows, layer_step, to_tree, to_windows
from vcc.hosts.host import FamilyHost, Inputs


@dataclass(frozen=True)
class OneLayer(Host):
    """A host of one layer: compiled code is told apart by the numbers it is given, and this has none."""

    host: FamilyHost
    module: nn.Module

    @property
    def num_layers(self) -> int:
        return 1

    @property
    def training(self) -> bool:
        return self.host.training

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        return self.host.run_layer(self.module, rows, consecutive)

    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        return self.host.run_score(self.module, vips, nodes)


class Pieces:
    """`LongInputEncoder.encode_inputs` for inputs of one shape."""

    def __init__(self, backend: Any = "inductor", tuned: bool = True) -> None:
        """`tuned`: whether the compiler is to try several ways for each kernel, which long inputs gain from."""
        options = None if tuned else {"triton.autotune_pointwise": False}
        pieces = (compiled(piece, backend, options=options) for piece in (begin, window, tree, step, end))
        self.begin, self.window, self.tree, self.step, self.end = pieces

    def __call__(
        self, encoder: Any, inputs: Inputs, real: Tensor, vips: Tensor, settings: VccConfig
    ) -> tuple[Tensor, Tensor]:
        host: FamilyHost = encoder.host
        config = settings.resolved(host.num_layers)
        layers = [OneLayer(host, layer) for layer in host.layers]
        first, windows = self.begin(encoder, inputs, real, vips, config)
        for layer in layers[: config.window_layers]:
            windows = replace(windows, parts=tuple(self.window(layer, part) for part in windows.parts))
        state = with_own_strides(self.tree(windows, vips, config))
        for layer in layers[config.window_layers or 0 :]:
            state = with_own_strides(self.step(layer, state, config))
        return first, self.end(host, state)


def compiled(
    function: Callable[..., Any],
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """A copy of a function, compiled. Of one function the compiler makes eight graphs at most, then it fails; every
    shape has a copy of its own."""
    assert isinstance(function, FunctionType)
    copy = FunctionType(function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__)
    return torch.compile(copy, fullgraph=True, dynamic=False, backend=backend, mode=mode, options=options)


def begin(encoder: Any, inputs: Inputs, real: Tensor, vips: Tensor, config: VccConfig) -> tuple[Tensor, Windowed]:
    rows = encoder.embed(inputs, real, vips, config)
    return rows.hidden, to_windows(rows, vips, config)


def window(host: Host, part: Rows) -> Rows:
    return layer_on_windows(host, 0, part)


def tree(windows: Windowed, vips: Tensor, config: VccConfig) -> Compressed:
    return with_vips_together(to_tree(windows, vips, config))


def step(host: Host, state: Compressed, config: VccConfig) -> Compressed:
    return with_vips_together(layer_step(host, 0, state, config)[0])


def end(host: FamilyHost, state: Compressed) -> Tensor:
    return host.finish(state.whole().hidden)


def with_vips_together(state: Compressed) -> Compressed:
    """Memory is laid out alike after every piece: a compiled function is for one layout."""
    return replace(state, vips=state.vips.with_hidden(state.vips.hidden.contiguous()))


def with_own_strides(state: Compressed) -> Compressed:
    """A batch of one counts as contiguous with the strides of what it was cut from, which differ from piece to piece;
    a compiler leaves them so, and the next piece would be compiled once more."""
    hidden = state.vips.hidden
    return replace(state, vips=state.vips.with_hidden(hidden.flatten(0, 1).unflatten(0, hidden.shape[:2])))
