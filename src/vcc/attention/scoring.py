"""How the scores between rows are made, beyond the products of queries and keys."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class RelativeBias:
    """T5's learned bias for the distance between two rows: one number per bucket of distances and head, both ways.

    Half of the buckets are for keys to the right. Of each half, one half holds the distances 0, 1, 2, ... one by one;
    the rest grow logarithmically, and the last one holds everything from just below `max_distance` on.
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
        """The bucket of each distance (key - query), which is first rounded, halves away from zero."""
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

        Row i is row 0 moved i places to the right, so it is read off one long vector with a period of 2 r; the gradient
        of that is a sum, where the gradient of a table lookup would be a scatter.
        """
        step = torch.arange(2 * r, device=self.table.device)
        by_step = self.table[self.buckets(torch.where(step < r, step, step - 2 * r)).long()]  # (2 r, H)
        repeated = by_step.t().unsqueeze(1).expand(-1, r, -1).flatten(1)  # (H, r * 2 r)
        return repeated[:, : r * (2 * r - 1)].unflatten(1, (r, 2 * r - 1))[None, :, :, :r].contiguous()


class _Lookup(torch.autograd.Function):
    """table (buckets, H) at bucket (B, m, n) -> (B, H, m, n), with a gradient that is a matrix product: millions of
    additions to a few dozen places are slow as a scatter."""

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


def distances(queries: Tensor, keys: Tensor) -> Tensor:
    """Positions (B, m) and (B, n) -> key - query (B, m, n), in float32 as every backend has it."""
    return keys.float()[:, None, :] - queries.float()[:, :, None]


@dataclass(frozen=True)
class Scoring:
    """`scale`: of the products; 1/sqrt(d) unless given. `relative`: a bias by distance. `window`: rows further apart
    than that do not see each other. `consecutive`: in every batch element, the rows are neighbouring tokens, so their
    distance is that of their indices. `dropout`: of the probabilities."""

    scale: float | None = None
    relative: RelativeBias | None = None
    window: int | None = None
    consecutive: bool = False
    dropout: float = 0.0
