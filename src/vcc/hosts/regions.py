"""Layers as regions of a compiled graph.

The layers of a model differ in their weights only. A compiler that is told so translates one of each kind, a window
layer and a compressed one, and writes a call of it where it would have written the other layers out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vcc.core.rows import Rows
from vcc.encode import Host


@torch.compiler.nested_compile_region
def run_layer(host: Host, index: int, rows: Rows, consecutive: bool) -> Tensor:
    return host.layer(index, rows, consecutive)


@torch.compiler.nested_compile_region
def run_score(host: Host, index: int, vips: Rows, nodes: Rows) -> Tensor:
    return host.score(index, vips, nodes)


@dataclass(frozen=True)
class Regional(Host):
    """A host whose layers and scores are regions; what is between them, reading and writing the tree, is not: a region
    can neither change what it is given nor hand it back."""

    host: Host

    @property
    def num_layers(self) -> int:
        return self.host.num_layers

    @property
    def training(self) -> bool:
        return self.host.training

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        return run_layer(self.host, index, rows, consecutive)

    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        return run_score(self.host, index, vips, nodes)
