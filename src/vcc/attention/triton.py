"""The fused CUDA kernel of `vcc.attention.kernels`: relative bias and window are computed from the positions, tile by
tile, without an (r, r) matrix."""

import torch
from torch import Tensor

from vcc.attention.scoring import Scoring
from vcc.core.rows import Rows, log_counts
from vcc.has_triton import why_not_on


def attend_triton(q: Tensor, k: Tensor, v: Tensor, rows: Rows, scoring: Scoring) -> Tensor:
    reason = why_not_triton(q, scoring)
    if reason:
        raise ValueError(f'backend "triton" cannot run here: {reason}')
    from vcc.attention.kernels.relative_attention import relative_attention

    relative = scoring.relative
    return relative_attention(
        q,
        k,
        v,
        log_counts(rows.counts),
        rows.positions.float(),
        None if relative is None else relative.table,
        scale=scoring.scale_of(q),
        starts=() if relative is None else relative.starts,
        window=scoring.window,
        first=scoring.first,
        ordered=scoring.ordered,
        consecutive=scoring.consecutive,
        dropout=scoring.dropout,
    )


def why_not_triton(q: Tensor, scoring: Scoring) -> str | None:
    """Return why the fused kernel cannot run; None if it can."""
    reason = why_not_on(q.device)
    if reason:
        return reason
    if q.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return f"the dtype is {q.dtype}; it must be bfloat16, float16 or float32"
    if not 16 <= q.shape[-1] <= 128:
        return f"the head dimension is {q.shape[-1]}; it must be between 16 and 128"
    if scoring.bias is not None:
        return "there is a bias for every two rows; only a bias by distance can be computed from the positions"
    buckets = 1 if scoring.relative is None else scoring.relative.table.shape[0]
    if buckets & (buckets - 1):
        return f"the relative bias has {buckets} buckets; their number must be a power of 2"
    return None
