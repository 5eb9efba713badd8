"""Attention without a mask, where the layout of the keys' counts is known (`Pattern`).

A bias per key makes a fused kernel half again as slow. There are two ways around it, both exact up to rounding:

- Only a few of many windows hold both tokens and padding. Attend in all of them without a mask, then repeat those few
  with one.
- The keys of a cut come in groups of equal counts. Attend to each group on its own, and join the groups by their
  log-sum-exp, to which a group adds the log of its count. Two kinds of rows do not fit their group, and their
  surplus is subtracted: the row that stands for fewer tokens than the others, and padding.

Subtracting is safe only if padding contributes little. All keys are therefore shifted by their mean, which changes no
softmax, and padding gets the key zero, that mean. By Jensen's inequality m rows of padding then add to a sum of
exponentials at most m / n of what the n tokens add; and a zero key does not contribute to the gradient of the queries.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vcc.core.rows import Pattern, Rows, log_counts, sum_dtype

MANY_ROWS = 4096  # from here on, two kernel calls without a mask are faster than one with it
MANY_WINDOWS = 64
FEW = 16  # at most one in this many windows may be repeated
TILE = 128  # keys per kernel tile; groups are padded to a multiple, which is faster than a ragged end


def attend_unmasked(q: Tensor, k: Tensor, v: Tensor, rows: Rows, scale: float) -> Tensor | None:
    """softmax(scale q k^T + log counts) v, in the way that is faster than a mask; None if neither is."""
    pattern, batch = rows.pattern, q.shape[0]
    if pattern is None:
        return None
    if len(pattern.groups) == 1 and batch >= MANY_WINDOWS and pattern.uneven * FEW <= batch:
        return attend_few_masked(q, k, v, rows.counts, pattern.uneven, scale)
    return attend_groups(q, k, v, rows.counts, pattern, scale) if len(rows) >= MANY_ROWS else None


# ------------------------------------------------------------------------------------------------------- fused kernels


def fused(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Attention and the log-sum-exp of each query's scores: (B, H, r, d), (B, H, r)."""
    if q.is_cuda:
        given = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, bias, True, 0.0, False, False, scale=scale)
        return given[0], given[1].view(q.shape[:3])
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=bias, scale=scale)


def fused_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, taking exp(scores - lse) as the probabilities and `out` as the output."""
    if q.is_cuda:
        seed = torch.empty((), dtype=torch.int64, device=q.device)  # unused: no dropout
        return torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
            grad, q, k, v, out, lse.unsqueeze(-1), seed, seed, bias, None, None, q.shape[2], k.shape[2], 0.0, False,
            scale=scale,
        )  # fmt: skip
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, q, k, v, out, lse, 0.0, False, attn_mask=bias, scale=scale
    )


# ----------------------------------------------------------------------------------------- as one operation of torch
# Opaque to the compiler, which would copy a whole output to change a part of it, and choose its own layout for `lse`.


@torch.library.custom_op("vcc::fused_attention", mutates_args=())
def _fused(
    q: Tensor, k: Tensor, v: Tensor, scale: float, again: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attend without a mask, then repeat batch elements `again` (m,) with the bias (m, 1, r, r)."""
    out, lse = fused(q, k, v, scale)
    if again is not None:
        for whole, part in zip((out, lse), fused(q[again], k[again], v[again], scale, bias), strict=True):
            whole.index_copy_(0, again, part)
    return laid_out_like(out, q), lse.contiguous()


@torch.library.custom_op("vcc::fused_attention_backward", mutates_args=())
def _fused_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    again: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    lse = lse.contiguous()
    dq, dk, dv = fused_backward(grad, q, k, v, out, lse, scale)
    if again is not None:
        some = fused_backward(grad[again], q[again], k[again], v[again], out[again], lse[again], scale, bias)
        for whole, part in zip((dq, dk, dv), some, strict=True):
            whole.index_copy_(0, again, part)
    return laid_out_like(dq, q), laid_out_like(dk, k), laid_out_like(dv, v)


@_fused.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, scale: float, again: Any, bias: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=sum_dtype(q.dtype))


@_fused_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float, again: Any, bias: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def laid_out_like(found: Tensor, given: Tensor) -> Tensor:
    """`found` with the strides of `empty_like(given)`, which the fake versions above promise to the compiler."""
    strides = torch.empty_like(given, device="meta").stride()
    return found if found.stride() == strides else torch.empty_like(given).copy_(found)


def _remember(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, ctx.scale, again, bias = inputs
    ctx.save_for_backward(q, k, v, *output, again, bias)


def _gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *saved, again, bias = ctx.saved_tensors
    return *_fused_backward(grad, *saved, ctx.scale, again, bias), None, None, None


_fused.register_autograd(_gradients, setup_context=_remember)


# ---------------------------------------------------------------------------------------------------------- few masked


def attend_few_masked(q: Tensor, k: Tensor, v: Tensor, counts: Tensor, uneven: int, scale: float) -> Tensor:
    """Batch elements are all tokens or all padding, except at most `uneven` of them, which are repeated."""
    real = counts > 0
    again = (real.any(1) & ~real.all(1)).float().topk(uneven).indices  # with fewer, others are repeated in vain
    bias = log_counts(counts.index_select(0, again)).to(q.dtype)[:, None, None]
    return _fused(q, k, v, scale, again, bias.expand(-1, -1, q.shape[2], -1))[0]


# -------------------------------------------------------------------------------------------------------------- groups


@dataclass(frozen=True)
class KeyGroup:
    """The keys that stand for `tokens` tokens each, prepared for attention without a mask.

    Besides full rows it may hold, per batch element, one *odd* row that stands for fewer tokens, and padding.
    """

    tokens: int
    where: list[slice]  # their places among all rows
    k: Tensor  # (B, H, m, d) minus the mean of all keys; padding is zero. m is padded to a multiple of TILE
    v: Tensor  # (B, H, m, d) weighted with counts / tokens
    weights: Tensor  # (B, 1, m, 1) counts / tokens

    @property
    def padding(self) -> Tensor:
        """The number of padding rows, (B, 1, 1)."""
        return (self.weights == 0).sum(2)

    @property
    def odd(self) -> Tensor:
        """A mask of the odd row, (B, 1, m, 1)."""
        return (self.weights > 0) & (self.weights < 1)

    @property
    def odd_key(self) -> Tensor:
        """The key of the odd row, or zero if there is none, (B, H, 1, d)."""
        return (self.k.to(self.weights.dtype) * self.odd).sum(2, keepdim=True)

    def surplus(self, q: Tensor, unit: Tensor, scale: float) -> Tensor:
        """The surplus of the odd row in the sum of exponentials, in units of exp(unit): (B, H, r) both."""
        much = (self.odd * (1 - self.weights)).sum(2)
        return much * (scale * (q.to(unit.dtype) * self.odd_key).sum(-1) - unit).exp()


def key_groups(k: Tensor, v: Tensor, counts: Tensor, pattern: Pattern) -> list[KeyGroup]:
    """Group the keys by their counts; groups of the pattern with equal counts are merged."""
    places: dict[int, list[slice]] = {}
    start = 0
    for number, tokens in pattern.groups:
        if number:
            places.setdefault(tokens, []).append(slice(start, start + number))
        start += number
    all_weights = counts.to(sum_dtype(k.dtype))[:, None, :, None]
    mean = (k * all_weights).sum(2, keepdim=True) / all_weights.sum(2, keepdim=True).clamp(min=1)
    centred = torch.where(all_weights > 0, k - mean, 0).to(k.dtype)

    def gathered(rows: Tensor, where: list[slice]) -> Tensor:
        found = torch.cat([rows[:, :, place] for place in where], 2)
        return F.pad(found, (0, 0, 0, -found.shape[2] % TILE))

    def group(tokens: int, where: list[slice]) -> KeyGroup:
        weights = gathered(all_weights / tokens, where)
        values = (gathered(v, where) * weights).to(v.dtype)
        return KeyGroup(tokens, where, gathered(centred, where), values, weights)

    return [group(*each) for each in places.items()]


class _ByGroups(torch.autograd.Function):
    """In the backward pass a group gets the joint output, and the joint log-sum-exp minus the log of its count. With
    these, the kernel's own backward uses the group's share of the probabilities, and the groups' gradients add up."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, counts: Tensor, pattern: Pattern, scale: float) -> Tensor:
        groups = key_groups(k, v, counts, pattern)
        outs, sums = zip(*(_fused(q, group.k, group.v, scale, None, None) for group in groups), strict=True)
        logs = [lse + math.log(group.tokens) for group, lse in zip(groups, sums, strict=True)]  # (B, H, r) each
        most = torch.stack(logs).amax(0)
        total = torch.zeros_like(most)  # in units of exp(most)
        for group, lse in zip(groups, logs, strict=True):
            total = total + (lse - most).exp() - group.tokens * group.padding * (-most).exp()
            if group.tokens > 1:
                total = total - group.tokens * group.surplus(q, most, scale)
        joint = most + total.clamp(min=torch.finfo(total.dtype).eps).log()
        shares = ((lse - joint).exp()[..., None] for lse in logs)
        mixed = torch.stack([out * share for out, share in zip(outs, shares, strict=True)]).sum(0)
        out = cast_unless_same(mixed, q.dtype)
        ctx.save_for_backward(q, k, v, counts, out, joint)
        ctx.pattern, ctx.scale = pattern, scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, counts, out, joint = ctx.saved_tensors
        scale, exact = ctx.scale, joint.dtype
        delta = (grad.to(exact) * out).sum(-1)  # (B, H, r)
        dq = torch.zeros_like(q, dtype=exact)
        dk: dict[int, Tensor] = {}  # by first row
        dv: dict[int, Tensor] = {}
        for group in key_groups(k, v, counts, ctx.pattern):
            lse = joint - math.log(group.tokens)
            queries, keys, values = _fused_backward(grad, q, group.k, group.v, out, lse, scale, None, None)
            keys, values = keys * (group.weights > 0), values * group.weights
            dq = dq + queries
            if group.tokens > 1:
                surplus = (scale * group.surplus(q, lse, scale) * delta)[..., None]
                dq = dq + surplus * group.odd_key
                keys = keys + group.odd * (surplus * q).sum(2, keepdim=True)
            start = 0
            for place in group.where:
                rows = slice(start, start := start + place.stop - place.start)
                dk[place.start], dv[place.start] = keys[:, :, rows].to(q.dtype), values[:, :, rows].to(q.dtype)
        joined = (torch.cat([each[start] for start in sorted(each)], 2) for each in (dk, dv))
        return dq.to(q.dtype), *joined, None, None, None


def cast_unless_same(values: Tensor, dtype: torch.dtype) -> Tensor:
    """`to`, skipping conversions to the same dtype: torch 2.11 loses the gradients of a compiled autograd.Function that
    returns the result of one."""
    return values if values.dtype == dtype else values.to(dtype)


def attend_groups(q: Tensor, k: Tensor, v: Tensor, counts: Tensor, pattern: Pattern, scale: float) -> Tensor:
    """Attend group by group, and join the groups by their log-sum-exp."""
    return _ByGroups.apply(q, k, v, counts, pattern, scale)
