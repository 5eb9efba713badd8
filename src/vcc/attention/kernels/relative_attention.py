"""Attention with a bias per key and, from the rows' positions, T5's relative bias or a local window: one operation of
torch, with its gradient. The kernels are in `tiles.py`. Imported only if Triton is installed."""

# mypy: disable-error-code="no-untyped-def"
# (torch.library reads the schema, not annotations)

from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn import functional as F

from vcc.attention.kernels import tiles as kernels

LOG2E = 1.4426950408889634
EDGE = 128  # per-row numbers are padded to a multiple of this; no block may be larger


@dataclass(frozen=True)
class Blocks:
    """The tiling of a kernel: queries and keys per tile, warps per program, loads in flight, registers per thread."""

    queries: int
    keys: int
    warps: int
    stages: int
    registers: int | None = None  # None: the compiler's choice. Fewer let more programs share a multiprocessor


@dataclass(frozen=True)
class Plan:
    """The blocks of the kernels. Those of the table's gradient have the tiles of the query kernel, so only the rest of
    `table` counts."""

    forward: Blocks
    query: Blocks
    key: Blocks
    table: Blocks


def choose_plan(dtype: torch.dtype, features: int, local: bool = False) -> Plan:
    """A fixed choice instead of a search: the first call compiles each kernel once. `local`: most tiles are skipped."""
    if dtype == torch.float32:  # exact products run without tensor cores, from registers: small tiles
        return Plan(*[Blocks(32, 32, 4, 2)] * 4)
    if features > 64:
        return Plan(Blocks(128, 64, 8, 2), *[Blocks(64, 64, 4, 2)] * 3)
    if local:  # a few tiles each: small ones, and many programs at a time
        few = 128 if features <= 32 else None
        return Plan(Blocks(64, 64, 4, 2, few), Blocks(64, 32, 4, 2), Blocks(64, 64, 4, 2, 168), Blocks(64, 32, 4, 2))
    return Plan(Blocks(128, 128, 8, 2), Blocks(64, 64, 4, 2, 168), Blocks(64, 128, 8, 2), Blocks(64, 64, 4, 2))


@dataclass(frozen=True)
class Bias:
    """The bias on the scores, and the dropout of the probabilities."""

    keys: Tensor  # (B, r and more) float32, contiguous, in base 2; -inf beyond the rows
    positions: Tensor  # (B, r) float32, contiguous
    table: Tensor | None  # (buckets, H)
    seed: Tensor | None  # (1,) int64; None: no dropout
    scale: float
    starts: tuple[int, ...]
    window: int  # -1: none
    first: int  # rows that the window does not hide from any other, nor any other from them
    ordered: bool  # the others are single tokens in their order
    consecutive: bool
    dropout: float

    @property
    def padded_r(self) -> int:
        return self.keys.shape[1]

    @property
    def far(self) -> int:
        return self.starts[-1] if self.starts else 0

    @property
    def bounded(self) -> bool:
        """Whether tiles need the least and largest position of their rows."""
        return not self.consecutive and (self.table is not None or self.window >= 0)

    def flags(self) -> dict[str, bool | int]:
        return {
            "HAS_TABLE": self.table is not None,
            "HAS_WINDOW": self.window >= 0,
            "HAS_DROPOUT": self.seed is not None,
            "CONSECUTIVE": self.consecutive,
            "FAR": self.far,
        }

    def numbers(self) -> tuple[float, int, Tensor, int, float]:
        """window, first, seed, the hash below which a probability is dropped, and the factor of those that are kept."""
        seed = self.keys if self.seed is None else self.seed  # any pointer: it is not read
        return float(self.window), self.first, seed, int(self.dropout * 2**32), 1 / (1 - self.dropout)


@dataclass(frozen=True)
class Prepared:
    """The kernels' lookup tables, made from the positions and the bias table once per call."""

    grain: int
    grains: int
    reach: int
    bounds: Tensor  # (B, grains, 2): least and largest position of every `grain` rows; or empty
    biases: Tensor  # (H, 2 reach + 1): by distance; or empty
    edges: Tensor  # (buckets / 2,): the distance, before rounding, at which a bucket begins


def prepare(q: Tensor, bias: Bias, *blocks: Blocks) -> Prepared:
    batch, heads, r, _ = q.shape
    sizes = [size for block in blocks for size in (block.queries, block.keys)]
    grain, largest = min(sizes), max(sizes)
    grains = triton.cdiv(r, largest) * (largest // grain)
    reach = bias.far + 2 * largest if bias.consecutive else bias.far  # a near tile of neighbours needs no clamping
    bounds = q.new_empty((batch, grains, 2) if bias.bounded else (0,), dtype=torch.float32)
    biases = q.new_empty((0,) if bias.table is None else (heads, 2 * reach + 1), dtype=torch.float32)
    edges = q.new_empty(len(bias.starts) + 1, dtype=torch.float32)
    bound_programs = batch * grains if bias.bounded else 0
    bias_programs = 0 if bias.table is None else heads * triton.cdiv(2 * reach + 1, 256)
    if bound_programs + bias_programs:
        table = biases if bias.table is None else bias.table
        kernels._prepare_kernel[(bound_programs + bias_programs,)](
            bias.positions, table, bounds, biases, edges, r, heads, grains, bound_programs, table.stride(0),
            table.stride(-1), GRAIN=grain, REACH=reach, STARTS=bias.starts, BLOCK=256, num_warps=4,
        )  # fmt: skip
    return Prepared(grain, grains, reach, bounds, biases, edges)


@dataclass(frozen=True)
class Visible:
    """For every tile of rows, which tiles of rows it sees; empty without a window."""

    lists: Tensor  # (B, tiles, width) int32: those of which it sees a part from the front, the others from the back
    counts: Tensor  # (B, tiles, 2) int32: how many of each

    @property
    def width(self) -> int:
        return self.lists.shape[-1]


def visible(q: Tensor, bias: Bias, ready: Prepared, own: int, other: int) -> Visible:
    """Lists for tiles of `own` rows of tiles of `other` rows."""
    batch, _, r, _ = q.shape
    if bias.window < 0:
        empty = q.new_empty(0, dtype=torch.int32)
        return Visible(empty, empty)
    tiles, width = triton.cdiv(r, own), triton.cdiv(r, other)
    ordered = bias.ordered or bias.consecutive
    if ordered:  # the lists of many rows are short
        near = (own + 2 * bias.window) // other + 2
        width = min(width, triton.cdiv(bias.first, other) + near)
    lists = q.new_empty(batch, tiles, width, dtype=torch.int32)
    counts = q.new_empty(batch, tiles, 2, dtype=torch.int32)
    kernels._visible_kernel[(batch * tiles,)](
        ready.bounds, lists, counts, r, ready.grains, width, bias.window, bias.first,
        OWN=own, OTHER=other, GRAIN=ready.grain, CONSECUTIVE=bias.consecutive, ORDERED=ordered, BLOCK=128,
        ASM=q.is_cuda, num_warps=4,
    )  # fmt: skip
    return Visible(lists, counts)


def strides(tensor: Tensor) -> tuple[int, int, int]:
    return tensor.stride(0), tensor.stride(1), tensor.stride(2)


def shape_of(q: Tensor, blocks: Blocks) -> dict[str, int | str]:
    features = q.shape[-1]
    limit = {} if blocks.registers is None else {"maxnreg": blocks.registers}
    return {
        **limit,
        "D": features,
        "PADDED": triton.next_power_of_2(features),
        "M": blocks.queries,
        "N": blocks.keys,
        "ASM": q.is_cuda,
        "PRECISION": "ieee" if q.dtype == torch.float32 else "tf32",
        "num_warps": blocks.warps,
        "num_stages": blocks.stages,
    }


def features_last(*tensors: Tensor) -> list[Tensor]:
    """The kernels need contiguous features; other dimensions may be strided."""
    return [tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in tensors]


def empty_heads(q: Tensor) -> Tensor:
    """(B, H, r, d) stored as (B, r, H, d): the layout in which a layer splits and merges its heads for free."""
    batch, heads, r, features = q.shape
    return q.new_empty(batch, r, heads, features).transpose(1, 2)


def forward(q: Tensor, k: Tensor, v: Tensor, bias: Bias, plan: Plan | None = None) -> tuple[Tensor, Tensor]:
    """-> out (B, H, r, d) and the base-2 log of every row's sum of exponentials (B, H, r and more)."""
    q, k, v = features_last(q, k, v)
    batch, heads, r, features = q.shape
    blocks = (plan or choose_plan(q.dtype, features, bias.window >= 0)).forward
    out = empty_heads(q)
    lse = q.new_empty(batch, heads, bias.padded_r, dtype=torch.float32)
    with torch.cuda.device_of(q):
        ready = prepare(q, bias, blocks)
        seen = visible(q, bias, ready, blocks.queries, blocks.keys)
        kernels._forward_kernel[(batch * heads * triton.cdiv(r, blocks.queries),)](
            q, k, v, bias.keys, bias.positions, ready.bounds, ready.biases, seen.lists, seen.counts, out, lse,
            *strides(q), *strides(k), *strides(v), *strides(out), heads, r, bias.padded_r, ready.grains,
            seen.width, bias.scale * LOG2E, *bias.numbers(),
            EDGE=EDGE, GRAIN=ready.grain, REACH=ready.reach, **bias.flags(), **shape_of(q, blocks),
        )  # fmt: skip
    return out, lse


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    bias: Bias,
    table_grad: bool,
    plan: Plan | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """-> dq, dk, dv like q, k, v, and the table's gradient (buckets, H) in float32, empty if not asked for."""
    grad, q, k, v, out = features_last(grad, q, k, v, out)
    batch, heads, r, features = q.shape
    plan = plan or choose_plan(q.dtype, features, bias.window >= 0)
    dq, dk, dv = empty_heads(q), empty_heads(k), empty_heads(v)
    delta = torch.empty_like(lse)
    factor = bias.scale * LOG2E

    # Every program of the query and table kernels leaves one share of the table's gradient.
    buckets = 2 * (len(bias.starts) + 1)
    rows = triton.cdiv(r, plan.query.queries)  # of tiles
    columns = triton.cdiv(r, plan.query.keys)
    if bias.consecutive:  # a program per near tile and part of the batch
        near = triton.cdiv(plan.query.queries + 2 * bias.far, plan.query.keys) + 1
        splits = max(1, min(batch, 2048 // (near * rows * heads)))
        table_shares = rows * near * splits
    else:  # a program per row of tiles and part of the keys
        near, splits = 0, triton.cdiv(columns, 16)
        table_shares = rows * batch * splits
    shares = rows * batch + table_shares
    partial = q.new_empty((heads, shares, buckets) if table_grad else (0,), dtype=torch.float32)
    dtable = q.new_empty((buckets, heads) if table_grad else (0,), dtype=torch.float32)

    with torch.cuda.device_of(q):
        ready = prepare(q, bias, plan.query, plan.key)
        by_query = visible(q, bias, ready, plan.query.queries, plan.query.keys)
        by_key = visible(q, bias, ready, plan.key.keys, plan.key.queries)
        common: dict[str, Any] = {"GRAIN": ready.grain, "REACH": ready.reach, **bias.flags()}
        kernels._query_kernel[(batch * heads * rows,)](
            q, k, v, bias.keys, bias.positions, ready.bounds, ready.biases, by_query.lists, by_query.counts, out, grad,
            lse, delta, dq, partial,
            *strides(q), *strides(k), *strides(v), *strides(out), *strides(grad), *strides(dq),
            heads, r, bias.padded_r, ready.grains, by_query.width, shares, factor, bias.scale, *bias.numbers(),
            EDGE=EDGE, BUCKETS=buckets, TABLE_GRAD=table_grad, **common, **shape_of(q, plan.query),
        )  # fmt: skip
        kernels._key_kernel[(batch * heads * triton.cdiv(r, plan.key.keys),)](
            q, k, v, bias.keys, bias.positions, ready.bounds, ready.biases, by_key.lists, by_key.counts, grad, lse,
            delta, dk, dv,
            *strides(q), *strides(k), *strides(v), *strides(grad), *strides(dk), heads, r, bias.padded_r, ready.grains,
            by_key.width, factor, bias.scale, *bias.numbers(), **common, **shape_of(q, plan.key),
        )  # fmt: skip
        if table_grad:
            blocks = replace(plan.table, queries=plan.query.queries, keys=plan.query.keys)
            common = {
                "HAS_WINDOW": bias.window >= 0,
                "HAS_DROPOUT": bias.seed is not None,
                "FAR": bias.far,
                "REACH": ready.reach,
                "BUCKETS": buckets,
                **shape_of(q, blocks),
            }
            inputs = (*strides(q), *strides(k), *strides(v), *strides(grad))
            numbers = (splits, rows * batch, shares, factor, *bias.numbers())
            if bias.consecutive:
                kernels._neighbour_kernel[(heads * table_shares,)](
                    q, k, v, bias.keys, ready.biases, ready.edges, grad, lse, delta, partial,
                    *inputs, batch, heads, r, bias.padded_r, *numbers, NEAR=near, **common,
                )  # fmt: skip
            else:
                kernels._near_kernel[(heads * table_shares,)](
                    q, k, v, bias.keys, bias.positions, ready.bounds, ready.biases, ready.edges, grad, lse, delta,
                    partial, *inputs, heads, r, bias.padded_r, ready.grains, *numbers, GRAIN=ready.grain, **common,
                )  # fmt: skip
            kernels._finish_kernel[(heads,)](
                partial, dtable, shares, *dtable.stride(), BUCKETS=buckets, BLOCK=64, num_warps=4
            )  # fmt: skip
    return dq, dk, dv, dtable


# ------------------------------------------------------------------------------------------- as one operation of torch

_BIAS = (
    "Tensor keys, Tensor positions, Tensor? table, Tensor? seed, float scale, int[] starts, int window, int first, "
    "bool ordered, bool consecutive, float dropout"
)


def _bias(keys, positions, table, seed, scale, starts, window, first, ordered, consecutive, dropout) -> Bias:
    return Bias(keys, positions, table, seed, scale, tuple(starts), window, first, ordered, consecutive, dropout)


@torch.library.custom_op(
    "vcc::attention", mutates_args=(), schema=f"(Tensor q, Tensor k, Tensor v, {_BIAS}) -> (Tensor, Tensor)"
)
def _attention(q, k, v, *bias):
    return forward(q, k, v, _bias(*bias))


@torch.library.custom_op(
    "vcc::attention_backward",
    mutates_args=(),
    schema=f"(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, {_BIAS}, bool table_grad)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def _attention_backward(grad, q, k, v, out, lse, *rest):
    return backward(grad, q, k, v, out, lse, _bias(*rest[:-1]), rest[-1])


@_attention.register_fake
def _(q, k, v, *bias):
    return empty_heads(q), q.new_empty(*q.shape[:2], bias[0].shape[1], dtype=torch.float32)


@_attention_backward.register_fake
def _(grad, q, k, v, out, lse, *rest):
    table, table_grad = rest[2], rest[-1]
    dtable = q.new_empty(tuple(table.shape) if table_grad else (0,), dtype=torch.float32)
    return empty_heads(q), empty_heads(k), empty_heads(v), dtable


def _remember(ctx, inputs, output) -> None:
    q, k, v, keys, positions, table, seed, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output, keys, positions, table, seed)


def _gradients(ctx, grad, _):
    *saved, table, seed = ctx.saved_tensors
    table_grad = table is not None and ctx.needs_input_grad[5]
    dq, dk, dv, dtable = _attention_backward(grad, *saved, table, seed, *ctx.rest, table_grad)
    return dq, dk, dv, None, None, dtable.to(table.dtype) if table_grad else None, *[None] * 8


_attention.register_autograd(_gradients, setup_context=_remember)


def relative_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    positions: Tensor,
    table: Tensor | None = None,
    *,
    scale: float,
    starts: tuple[int, ...] = (),
    window: int | None = None,
    first: int = 0,
    ordered: bool = False,
    consecutive: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """q, k, v (B, H, r, d), a bias per key and positions (B, r) in float32, table (buckets, H) -> (B, H, r, d).

    `starts[i]` is the first distance of bucket i + 1 to the left; the buckets to the right follow in the same order.
    `window`: keys further away are masked, but neither for the `first` rows nor these for others. `ordered`: the others
    are single tokens in their order. `consecutive`: the distance is that of the rows' indices.
    """
    keys = F.pad(keys * LOG2E, (0, -keys.shape[1] % EDGE), value=float("-inf"))
    seed = torch.randint(2**62, (1,), device=q.device) if dropout else None
    places, window = positions.contiguous(), -1 if window is None else window
    rest = (keys, places, table, seed, scale, list(starts), window, first, ordered, consecutive, dropout)
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return _attention(q, k, v, *rest)[0]
    # Calling an operation of torch takes longer than many of these kernels run; without gradients it is not needed.
    return forward(q, k, v, _bias(*rest))[0]
