"""`Scoring`: what a layer adds to its attention scores besides log(counts), and its scale and dropout."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vcc.core.rows import UNSEEN, Rows


@dataclass(frozen=True)
class RelativeBias:
    """T5's learned bias for the distance between two rows: one number per bucket of distances and head, both ways.

    Half of the buckets are for keys to the right. In each half, the first half are the distances 0, 1, 2, ..., one
    each; the rest grow logarithmically, and the last one holds everything from just below `max_distance` on.
    """

    table: Tensor  # (buckets, H)
    max_distance: int = 128

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or self.table.shape[0] < 4 or self.table.shape[0] % 4:
            raise ValueError(
                f"RelativeBias.table has shape {tuple(self.table.shape)}; it must be (buckets, heads), "
                "buckets being a multiple of 4"
            )
        if self.max_distance <= self.table.shape[0] // 4:
            raise ValueError(
                f"RelativeBias.max_distance is {self.max_distance}; it must be greater than a quarter of the "
                f"{self.table.shape[0]} buckets"
            )

    @property
    def starts(self) -> tuple[int, ...]:
        """The first distance of each bucket but the first, on one side: 1, 2, ..., 8, 12, 16, 23, ..."""
        half = self.table.shape[0] // 2
        exact = half // 2
        growth = self.max_distance / exact
        grown = (exact * growth ** (i / (half - exact)) for i in range(half - exact))
        return *range(1, exact), *(math.ceil(start - 1e-9) for start in grown)

    def buckets(self, distance: Tensor) -> Tensor:
        """The bucket of each distance (key - query), rounded first, halves away from zero."""
        size = (distance.abs() + 0.5).floor()
        exact = self.table.shape[0] // 4
        bucket = size.clamp(max=exact).to(torch.int32)
        for start in self.starts[exact:]:
            bucket += size >= start
        bucket += ((distance > 0) & (size > 0)) * (self.table.shape[0] // 2)
        return bucket

    def between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Positions (B, m) and (B, n) -> bias (B, H, m, n)."""
        return _Lookup.apply(self.table, self.buckets(distances(queries, keys)))

    def among(self, r: int) -> Tensor:
        """The bias among r neighbouring tokens, (1, H, r, r).

        Row i is row 0 shifted i places to the right, so all rows are read from one vector with period 2 r. Its gradient
        is a sum; that of a table lookup would be a scatter.
        """
        step = torch.arange(2 * r, device=self.table.device)
        by_step = self.table[self.buckets(torch.where(step < r, step, step - 2 * r)).long()]  # (2 r, H)
        repeated = by_step.t().unsqueeze(1).expand(-1, r, -1).flatten(1)  # (H, r * 2 r)
        return repeated[:, : r * (2 * r - 1)].unflatten(1, (r, 2 * r - 1))[None, :, :, :r].contiguous()


class _Lookup(torch.autograd.Function):
    """table (buckets, H) at bucket (B, m, n) -> (B, H, m, n). The gradient is a matrix product, because scattering
    millions of additions to a few dozen places is slow."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, bucket: Tensor) -> Tensor:
        ctx.save_for_backward(bucket)
        ctx.number = table.shape[0]
        ctx.dtype = table.dtype
        return table.t()[:, bucket].transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (bucket,) = ctx.saved_tensors
        batch, heads, m, n = grad.shape
        dtype = torch.promote_types(grad.dtype, torch.float32)
        every = torch.arange(ctx.number, device=grad.device)[:, None]
        total = torch.zeros(ctx.number, heads, dtype=dtype, device=grad.device)
        at_once = max(1, 2**26 // (ctx.number * batch * n))  # queries; a bounded one-hot matrix
        for start in range(0, m, at_once):
            part = slice(start, start + at_once)
            one_hot = (bucket[:, part].reshape(-1) == every).to(dtype)  # (buckets, B * queries * n)
            total = total + one_hot @ grad[:, :, part].transpose(0, 1).reshape(heads, -1).to(dtype).t()
        return total.to(ctx.dtype), None


@dataclass(frozen=True)
class Scoring:
    """How a layer turns queries and keys into probabilities, besides log(counts), which every layer adds."""

    scale: float | None = None  # of the products; None: 1 / sqrt(d)
    relative: RelativeBias | None = None
    window: int | None = None  # rows further apart than this do not see each other; None: all do
    first: int = 0  # so many rows, the first ones, see all rows and are seen by all, whatever the window
    ordered: bool = False  # the others are single tokens in their order: those that are near are near by index too
    consecutive: bool = False  # the rows are neighbouring tokens: distances are differences of indices
    dropout: float = 0.0  # of the probabilities
    bias: Tensor | None = None  # (B or 1, H, r, r), added as it is, where the bias depends on more than distances

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 0:
            raise ValueError(f"window is {self.window}; it must be at least 0")
        if self.first < 0:
            raise ValueError(f"first is {self.first}; it must be at least 0")

    def scale_of(self, q: Tensor) -> float:
        return q.shape[-1] ** -0.5 if self.scale is None else self.scale

    def distances(self, rows: Rows) -> Tensor:
        """key - query, (B or 1, r, r)."""
        positions = torch.arange(len(rows), device=rows.positions.device)[None] if self.consecutive else rows.positions
        return distances(positions, positions)


def distances(queries: Tensor, keys: Tensor) -> Tensor:
    """Positions (B, m) and (B, n) -> key - query (B, m, n), in float32 as in every backend."""
    return keys.float()[:, None, :] - queries.float()[:, :, None]


def local_bias(bias: Tensor, distance: Tensor, window: int, first: int = 0) -> Tensor:
    """The bias per key (B, r) where the distance (B or 1, r, r) is at most `window` or one of the two is among the
    `first` rows, else UNSEEN: (B, r, r). A padding row sees itself, so every row sees something."""
    itself = torch.eye(bias.shape[1], dtype=torch.bool, device=bias.device)
    seen = torch.where(itself, bias[:, None].clamp(min=0), bias[:, None])
    later = torch.arange(bias.shape[1], device=bias.device) >= first
    return seen.masked_fill((distance.abs() > window) & later & later[:, None], UNSEEN)
