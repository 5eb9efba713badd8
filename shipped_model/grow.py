"""Grow a BERT by layers that change nothing yet: training goes on from all that the model knows.

A new layer is a copy of the one below it whose two updates are zero. BERT normalises after each update, and the weight
and bias of its norms must not count twice: the norm below and the new layer's first norm only normalise, which is the
same once or several times, and weight and bias move to the new layer's last norm. The weights that read such a norm
take them in. From the first step the new layer's outputs have gradients; then they are not zero, and the rest has.
"""

import copy
from typing import Any

import torch
from torch import nn

from vcc.config import VccConfig


def window_layers_of(model: Any) -> int:
    """How many layers run on windows: all of a model that is not wrapped."""
    layers, settings = model.config.num_hidden_layers, getattr(model.config, "vcc", None)
    return (VccConfig.from_dict(settings).resolved(layers).window_layers or 0) if settings else layers


def grow(model: Any, held: int, window_layers: int, layers: int | None = None) -> None:
    """Add what a plain model lacks of `layers`, of which `window_layers` run on windows and at least one does not.

    New layers are spread over the `held` ones that already run on windows, unless it has enough others. On top come
    copies of the last layer, for compressed reading: the layers below keep comparable mean states.
    """
    stack = list(model.base_model.encoder.layer)
    new = window_layers - held if window_layers >= len(stack) else 0
    total = max(len(stack) + new, window_layers + 1) if layers is None else layers
    stack += [copy.deepcopy(stack[-1]) for _ in range(total - len(stack) - new)]
    grown: list[Any] = []
    for i, layer in enumerate(stack):
        grown += followed(layer, (i + 1) * new // held - i * new // held if i < held else 0)
    model.base_model.encoder.layer = nn.ModuleList(grown)
    model.config.num_hidden_layers = len(grown)


@torch.no_grad()
def followed(layer: Any, number: int) -> list[Any]:
    """A layer of BERT, which is changed, and new ones after it: together they compute what it did."""
    new = copy.deepcopy(layer)
    reads = new.attention.self
    take_in(layer.output.LayerNorm, reads.query, reads.key, reads.value)
    take_in(new.attention.output.LayerNorm, new.intermediate.dense)
    only_normalise(new.attention.output.LayerNorm)
    for update in (new.attention.output.dense, new.output.dense):
        update.weight.zero_()
        update.bias.zero_()
    found = [layer]
    for _ in range(number):
        only_normalise(found[-1].output.LayerNorm)
        found.append(copy.deepcopy(new))
    return found


def take_in(norm: nn.LayerNorm, *readers: nn.Linear) -> None:
    """Let linear layers compute from what a norm normalises what they computed from its output."""
    for reader in readers:
        reader.bias.add_(reader.weight @ norm.bias)
        reader.weight.mul_(norm.weight)


def only_normalise(norm: nn.LayerNorm) -> None:
    norm.weight.fill_(1.0)
    norm.bias.zero_()
