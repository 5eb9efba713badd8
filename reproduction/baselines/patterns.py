"""The pairs of blocks computed exactly: MRA chooses by score, Big Bird by position."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, final

import torch
from torch import Tensor

from reproduction.baselines.blocks import AttentionBlocks, attend_blocks
from vcc.errors import UsageError


class BlockPattern(ABC):
    """A kind of sparse attention with its settings. A subclass is final and a frozen dataclass."""

    name: str

    @abstractmethod
    def attend_heads(
        self, q: Tensor, k: Tensor, v: Tensor, real: Tensor, is_global: Tensor | None, scale: float, layer: int
    ) -> Tensor:
        """q, k, v (B, H, n, d), the tokens that are real and those that are global (B, n) -> (B, H, n, d)"""

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}  # type: ignore[call-overload]


class BlocksOfPairs(BlockPattern):
    """Attention by pairs of blocks, of which some are computed exactly. No token is global."""

    block: int

    @abstractmethod
    def attend(self, blocks: AttentionBlocks, layer: int) -> Tensor:
        """(N, X b, d)"""

    def attend_heads(
        self, q: Tensor, k: Tensor, v: Tensor, real: Tensor, is_global: Tensor | None, scale: float, layer: int
    ) -> Tensor:
        B, H, n, _ = q.shape
        real = real[:, None, :].expand(B, H, n).flatten(0, 1)
        blocks = AttentionBlocks.of(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), real, self.block, scale)
        with torch.autocast(q.device.type, enabled=False):  # sums over blocks stay in float32
            return self.attend(blocks, layer)[:, :n].unflatten(0, (B, H))


@final
@dataclass(frozen=True)
class Mra(BlocksOfPairs):
    """MRA-2 (Zeng et al. 2022): the best `per_row` blocks a row, over all rows of a head together, are exact; the rest
    is attended to through its means, or not at all (`rest` false: MRA-2-s). The defaults are those of the authors'
    model for 4,096 tokens, `mra-base-4096-8-d3`: 8 blocks a row, 3 of them around the diagonal.
    """

    block: int = 32
    per_row: int = 8
    diagonal: int = 3  # blocks around each row's own that are always chosen, up to `per_row`
    rest: bool = True

    name = "mra"

    def __post_init__(self) -> None:
        at_least(1, block=self.block, per_row=self.per_row)
        at_least(0, diagonal=self.diagonal)

    def attend(self, blocks: AttentionBlocks, layer: int) -> Tensor:
        coarse = blocks.coarse()
        return attend_blocks(blocks, self.wanted(coarse.detach(), blocks.counts), coarse if self.rest else None)

    def wanted(self, coarse: Tensor, counts: Tensor) -> Tensor:
        """(N, X, X). Only real blocks count, so padding changes nothing."""
        X = coarse.shape[-1]
        score = coarse - coarse.amax(-1, keepdim=True)
        x = torch.arange(X, device=coarse.device)
        if self.diagonal:
            near = (x[:, None] - x).abs() <= self.diagonal // 2
            score = score.masked_fill(near, torch.inf)
        some = counts > 0
        possible = some[:, :, None] & some[:, None, :]
        score = score.masked_fill(~possible, -torch.inf).flatten(1)
        number = some.sum(1) * self.per_row  # (N,)
        places = score.topk(min(X * self.per_row, X * X), dim=1).indices
        chosen = torch.arange(places.shape[1], device=coarse.device) < number[:, None]
        return torch.zeros_like(score, dtype=torch.bool).scatter(1, places, chosen).unflatten(1, (X, X)) & possible


@final
@dataclass(frozen=True)
class BigBird(BlocksOfPairs):
    """Big Bird (Zaheer et al. 2020): each block sees `window` blocks around it, the first and the last one, and
    `random` others, drawn once for each layer; the first and the last block see everything.

    Unlike Hugging Face's class it gives the same in training and evaluation (there, evaluation has no random blocks:
    it reads the first block several times), for any padding and any length.
    """

    block: int = 64
    window: int = 3
    random: int = 3

    name = "bigbird"

    def __post_init__(self) -> None:
        at_least(1, block=self.block, window=self.window)
        at_least(0, random=self.random)

    def attend(self, blocks: AttentionBlocks, layer: int) -> Tensor:
        return attend_blocks(blocks, self.wanted(blocks.counts, layer))

    def wanted(self, counts: Tensor, layer: int) -> Tensor:
        """(N, X, X)"""
        X = counts.shape[1]
        x = torch.arange(X, device=counts.device)
        some = counts > 0  # (N, X)
        last = (some * x).amax(1, keepdim=True)  # (N, 1)
        everywhere = (x == 0) | (x == last)  # (N, X)
        fixed = everywhere[:, :, None] | everywhere[:, None, :] | ((x[:, None] - x).abs() <= self.window // 2)
        possible = some[:, :, None] & some[:, None, :]
        if self.random == 0:
            return fixed & possible
        draw = scattered(x[:, None], x, layer).expand_as(fixed)
        draw = draw.masked_fill(fixed | ~possible, -1)
        best, places = draw.topk(min(self.random, X), dim=2)
        return fixed.scatter(2, places, fixed.gather(2, places) | (best >= 0)) & possible


def scattered(x: Tensor, y: Tensor, layer: int) -> Tensor:
    """A pseudo-random number per pair that does not depend on the number of blocks."""
    mixed = ((x * 73856093) ^ (y * 19349663) ^ (layer * 83492791 + 1)) % 2**31
    for shift in (15, 12, 16):
        mixed = ((mixed >> shift) ^ mixed) * 0x2C1B3C6D % 2**31
    return mixed


def at_least(least: int, **given: int) -> None:
    for name, value in given.items():
        if value < least:
            raise UsageError(f"{name}={value}: it must be at least {least}")
