"""A forward pass compiled in pieces: embeddings, a window layer, the tree, a compressed layer, the end.

The layers of a model differ only in their weights, and a compiled function takes the weights it is called with. So one
window layer and one compressed layer are compiled and called for all others. The cost: the compiler does not see all
layers together, so there is Python between them, and no single CUDA graph unless we record one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from vcc.config import VccConfig
from vcc.core.cut import Cut
from vcc.core.rows import Rows
from vcc.core.state import Compressed, Windowed
from vcc.encode import Host, layer_on_windows, layer_step, to_tree, to_windows
from vcc.hosts.families.host import FamilyHost, Near
from vcc.hosts.forward.request import LongInput
from vcc.hosts.forward.wrapped import Openings


@dataclass(frozen=True)
class OneLayer(Host):
    """A host with one layer. Compiled functions specialise on numbers; without a layer number there is none to
    specialise on."""

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

    def layer_near(self, index: int, rows: Rows, vips: int, reach: int, ordered: bool = False) -> Tensor:
        return self.host.run_layer(self.module, rows, False, Near(vips, reach, ordered))

    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        return self.host.run_score(self.module, vips, nodes)


class CompiledPieces:
    """`LongInputEncoder.encode_inputs` for inputs of one shape."""

    def __init__(self, backend: Any = "inductor", options: Mapping[str, Any] | None = None) -> None:
        """`options` are those of `torch.compile`."""
        functions = (begin, window, tree, step, step_and_cut, end)
        pieces = (compiled(piece, backend, options=options) for piece in functions)
        self.begin, self.window, self.tree, self.step, self.step_and_cut, self.end = pieces

    def __call__(
        self, encoder: Any, batch: LongInput, settings: VccConfig, openings: Openings | None = None
    ) -> tuple[Tensor, Tensor]:
        host: FamilyHost = encoder.host
        config = settings.resolved(host.num_layers)
        layers = [OneLayer(host, layer) for layer in host.layers]
        first, windows = self.begin(encoder, batch, config)
        for layer in layers[: config.window_layers]:
            parts = tuple(self.window(layer, part, config, windows.vips) for part in windows.parts)
            windows = replace(windows, parts=parts)
        state = with_own_strides(self.tree(windows, batch.vips, config))
        for layer in layers[config.window_layers or 0 :]:
            if openings is None:
                state = self.step(layer, state, config)
            else:
                state, cut = self.step_and_cut(layer, state, config)
                openings.add(cut, state.tree)
            state = with_own_strides(state)
        return first, self.end(host, state)


def compiled(
    function: Callable[..., Any],
    backend: Any = "inductor",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """A compiled copy of a function. The compiler makes at most eight graphs per function and then fails, so every
    shape gets its own copy."""
    assert isinstance(function, FunctionType)
    copy = FunctionType(function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__)
    return torch.compile(
        copy, fullgraph=True, dynamic=False, backend=backend, mode=mode, options=dict(options) if options else None
    )


def begin(encoder: Any, batch: LongInput, config: VccConfig) -> tuple[Tensor, Windowed]:
    rows = encoder.embed(batch, config)
    windows = to_windows(rows, batch.vips, config)
    if torch.is_grad_enabled():  # torch 2.11 loses the gradient of a result that is a view
        windows = replace(windows, parts=tuple(part.with_hidden(part.hidden.clone()) for part in windows.parts))
    return rows.hidden, windows


def window(host: Host, part: Rows, config: VccConfig, vips: int) -> Rows:
    return layer_on_windows(host, 0, part, config, vips)


def tree(windows: Windowed, vips: Tensor, config: VccConfig) -> Compressed:
    return with_vips_together(to_tree(windows, vips, config))


def step(host: Host, state: Compressed, config: VccConfig) -> Compressed:
    return with_vips_together(layer_step(host, 0, state, config)[0])


def step_and_cut(host: Host, state: Compressed, config: VccConfig) -> tuple[Compressed, Cut]:
    """The same, with the scores of the cut."""
    state, cut = layer_step(host, 0, state, config)
    return with_vips_together(state), Cut((), (), cut.opened_nodes, scores=cut.scores)


def end(host: FamilyHost, state: Compressed) -> Tensor:
    return host.finish(state.whole().hidden)


def with_vips_together(state: Compressed) -> Compressed:
    """The same memory layout after every piece: a compiled function specialises on it."""
    return replace(state, vips=state.vips.with_hidden(state.vips.hidden.contiguous()))


def own_strides(hidden: Tensor) -> Tensor:
    return hidden.contiguous().flatten(0, 1).unflatten(0, hidden.shape[:2])


def with_own_strides(state: Compressed) -> Compressed:
    """Set the first stride: a batch of one is contiguous with any, it differs from piece to piece, and each value would
    compile the next piece again."""
    return replace(state, vips=state.vips.with_hidden(own_strides(state.vips.hidden)))
