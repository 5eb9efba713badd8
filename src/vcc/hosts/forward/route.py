"""Which inputs of a batch are compressed, and which run through the untouched model."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vcc.config import VccConfig
from vcc.hosts.families.host import FamilyHost
from vcc.hosts.forward.break_even import worth_compressing
from vcc.hosts.forward.mixed import Extent
from vcc.hosts.forward.request import Request


@dataclass(frozen=True)
class DenseRoute:
    """Hugging Face's own forward takes the whole batch."""


@dataclass(frozen=True)
class CompressedRoute:
    """The whole batch is compressed."""

    real: Tensor  # (B, n)


@dataclass(frozen=True)
class MixedRoute:
    """The short inputs run dense without their padding, the others are compressed."""

    real: Tensor  # (B, n)
    extent: Extent
    short: tuple[bool, ...]  # for each input of the batch


Route = DenseRoute | CompressedRoute | MixedRoute


def route(request: Request, config: VccConfig, host: FamilyHost, compiled: bool) -> Route:
    """Choose by each input's own length. A graph being compiled cannot read the mask: there the batch width decides for
    all."""
    device, width = request.tokens.device.type, request.tokens.shape[1]

    def is_short(length: int) -> bool:
        """Whether an input is too short to gain from compression."""
        if host.longest is not None and length > host.longest:
            return False  # the untouched model has no positions for it
        if config.dense_below == "auto":
            return not worth_compressing(length, config, device, compiled)
        return length < config.dense_below

    if is_short(width):
        return DenseRoute()
    real = request.real_tokens()
    if torch.compiler.is_compiling() or request.inputs.get("attention_mask") is None or config.dense_below == 0:
        return CompressedRoute(real)
    extent = Extent.of(real, host.ignores_left_padding)
    short = tuple(map(is_short, extent.lengths))
    if not any(short):
        return CompressedRoute(real)
    if all(short) and (host.longest is None or width <= host.longest):
        return DenseRoute()
    return MixedRoute(real, extent, short)
