"""`attend`: attention between rows, each key weighing as many tokens as it stands for.

    softmax(scale q k^T + log(counts of the keys) + relative bias) v                                  (B, H, r, d)

Three backends compute it. "reference" says what it means; "sdpa" runs everywhere on PyTorch's own kernels; "triton" is
the fused kernel of `vcc.attention.kernels`, for CUDA. All of them give the same numbers, up to rounding.
"""

import os
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from vcc.attention.parts import attend_unmasked
from vcc.attention.scoring import RelativeBias, Scoring, distances
from vcc.core.rows import UNSEEN, Rows, log_counts

Backend = Literal["auto", "reference", "sdpa", "triton"]

FOLDED = 8  # head dimensions that carry the bias per key; flash kernels want a multiple of 8


# -------------------------------------------------------------------------------------------------------------- biases


def local_bias(bias: Tensor, distance: Tensor, window: int) -> Tensor:
    """The bias per key (B, r) where the distance (B or 1, r, r) is at most `window`, else UNSEEN: (B, r, r). A padding
    row sees itself, so that every row sees something."""
    itself = torch.eye(bias.shape[1], dtype=torch.bool, device=bias.device)
    seen = torch.where(itself, bias[:, None].clamp(min=0), bias[:, None])
    return seen.masked_fill(distance.abs() > window, UNSEEN)


# -------------------------------------------------------------------------------------------------------------- attend


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Rows,
    scoring: Scoring = Scoring(),  # noqa: B008 (frozen)
    backend: Backend = "auto",
) -> Tensor:
    """q, k, v (B, H, r, d), one for each row -> (B, H, r, d). Of `rows`, only counts and positions are used."""
    scale, relative, window = scoring.scale, scoring.relative, scoring.window
    consecutive, dropout = scoring.consecutive, scoring.dropout
    if q.shape != k.shape or q.shape != v.shape or q.shape[::2] != rows.counts.shape:
        raise ValueError(
            f"attend was given q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} and "
            f"{tuple(rows.counts.shape)} rows; it needs three times (B, H, r, d) and (B, r) rows"
        )
    if relative is not None and relative.table.shape[1] != q.shape[1]:
        raise ValueError(f"the relative bias has {relative.table.shape[1]} heads; the queries have {q.shape[1]}")
    if window is not None and window < 0:
        raise ValueError(f"window is {window}; it must be at least 0")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if backend != "reference" and torch.is_autocast_enabled(q.device.type):
        q, k, v = (part.to(torch.get_autocast_dtype(q.device.type)) for part in (q, k, v))
    if backend == "auto":
        backend = fastest(q, relative, window)
    if backend == "reference":
        return _reference(q, k, v, rows, scale, relative, window, consecutive, dropout)
    if backend == "sdpa":
        return _sdpa(q, k, v, rows, scale, relative, window, consecutive, dropout)
    if backend == "triton":
        return _triton(q, k, v, rows, scale, relative, window, consecutive, dropout)
    raise ValueError(f'backend is {backend!r}; it must be "auto", "reference", "sdpa" or "triton"')


def fastest(q: Tensor, relative: RelativeBias | None, window: int | None) -> Backend:
    """The backend that "auto" stands for."""
    if not q.is_cuda or why_not_triton(q, relative):
        return "sdpa"
    if relative is not None or window is not None:
        return "triton"  # in float32 it is no faster, but it needs no (r, r) matrix
    return "sdpa" if q.dtype == torch.float32 or cudnn_masks(q) else "triton"


def cudnn_masks(q: Tensor) -> bool:
    """Whether to use cuDNN's kernel, which is fastest with a bias per key: in 16 bits, on Hopper and later. It makes a
    plan for every new shape, which takes longer than it saves, so only in compiled graphs, whose shapes stay."""
    half = q.dtype in (torch.bfloat16, torch.float16)
    known = half and q.is_cuda and q.shape[-1] % 8 == 0 and q.shape[-1] <= 128 and torch.compiler.is_compiling()
    return known and _prefers_cudnn(q.device)


@torch.compiler.assume_constant_result
def _prefers_cudnn(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] >= 9 and torch.backends.cuda.cudnn_sdp_enabled()


def why_not_triton(q: Tensor, relative: RelativeBias | None) -> str | None:
    """Why the fused kernel cannot run; None if it can."""
    reason = _why_not_triton_on(q.device)
    if reason:
        return reason
    if q.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return f"the dtype is {q.dtype}; it must be bfloat16, float16 or float32"
    if not 16 <= q.shape[-1] <= 128:
        return f"the head dimension is {q.shape[-1]}; it must be between 16 and 128"
    if relative is not None and relative.table.shape[0] & (relative.table.shape[0] - 1):
        return f"the relative bias has {relative.table.shape[0]} buckets; their number must be a power of 2"
    return None


@torch.compiler.assume_constant_result
def _why_not_triton_on(device: torch.device) -> str | None:
    if find_spec("triton") is None:
        return "Triton is not installed"
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return None if major >= 8 else f"the GPU has compute capability {major}.{minor}; it must be at least 8.0"
    if os.environ.get("TRITON_INTERPRET") == "1":  # Triton runs its kernels in Python, for tests
        return None
    return f"the tensors are on {str(device)!r}, not on a CUDA device"


def _reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Rows,
    scale: float,
    relative: RelativeBias | None,
    window: int | None,
    consecutive: bool,
    dropout: float,
) -> Tensor:
    """The definition, in float32 or float64."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    r = q.shape[2]
    positions = torch.arange(r, device=q.device)[None] if consecutive else rows.positions
    distance = distances(positions, positions)
    bias = log_counts(rows.counts, dtype)[:, None]  # (B, 1, r)
    if window is not None:
        bias = local_bias(bias[:, 0], distance, window)  # (B, r, r)
    scores = scale * q.to(dtype) @ k.to(dtype).mT + bias[:, None]
    if relative is not None:
        scores = scores + relative.table.to(dtype)[relative.buckets(distance).long()].permute(0, 3, 1, 2)
    return (F.dropout(scores.softmax(-1), dropout) @ v.to(dtype)).to(q.dtype)


def _sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Rows,
    scale: float,
    relative: RelativeBias | None,
    window: int | None,
    consecutive: bool,
    dropout: float,
) -> Tensor:
    """PyTorch's kernels. What differs from query to query has to be a matrix; the bias per key need not."""
    r, d = q.shape[2:]
    bias = log_counts(rows.counts, torch.promote_types(q.dtype, torch.float32))
    # On a CPU any kernel takes a float32 mask; on CUDA it has to be of the type of the queries.
    mask_dtype = torch.promote_types(q.dtype, torch.float32) if q.device.type == "cpu" else q.dtype
    matrix = None  # (B or 1, H or 1, r, r)
    if relative is not None:
        matrix = relative.among(r) if consecutive else relative.between(rows.positions, rows.positions)
        matrix = matrix.to(mask_dtype)
    if window is not None:
        positions = torch.arange(r, device=q.device)[None] if consecutive else rows.positions
        local = local_bias(bias, distances(positions, positions), window)[:, None].to(mask_dtype)
        matrix = local if matrix is None else matrix + local
        return F.scaled_dot_product_attention(q, k, v, matrix, dropout, scale=scale)
    if matrix is None and dropout == 0.0 and cudnn_masks(q):
        found = attend_unmasked(q, k, v, rows, scale)
        if found is not None:
            return found
    if matrix is None and (q.device.type == "cpu" or q.dtype not in (torch.bfloat16, torch.float16) or cudnn_masks(q)):
        # Softmax does not mind a shift. This one leaves 16 bits for what is left of the largest bias, and none are
        # needed for single tokens: with two scales nothing is rounded.
        shift = bias.amax(1, keepdim=True).to(mask_dtype).to(bias.dtype)
        mask = (bias - shift)[:, None, None].to(mask_dtype)
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
    q, k, v = fold(q, k, v, bias, scale)
    return F.scaled_dot_product_attention(q, k, v, matrix, dropout, scale=scale)[..., :d]


def fold(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v with FOLDED more head dimensions, so that scale q k^T gains `bias` (B, r) per key.

    The queries get ones and the keys bias / scale, in three pieces where one alone would be rounded to 8 bits.
    """
    pieces = 1 if k.dtype == bias.dtype else 3
    rest = (bias / scale).clamp(min=torch.finfo(k.dtype).min / 2)
    columns = []
    for _ in range(pieces):
        columns.append(rest.to(k.dtype))
        rest = rest - columns[-1].to(rest.dtype)
    extra_k = F.pad(torch.stack(columns, -1), (0, FOLDED - pieces))[:, None].expand(*k.shape[:3], FOLDED)
    extra_q = (torch.arange(FOLDED, device=q.device) < pieces).to(q.dtype).expand(*q.shape[:3], FOLDED)
    return torch.cat([q, extra_q], -1), torch.cat([k, extra_k], -1), F.pad(v, (0, FOLDED))


def _triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Rows,
    scale: float,
    relative: RelativeBias | None,
    window: int | None,
    consecutive: bool,
    dropout: float,
) -> Tensor:
    """The fused kernel: relative bias and window from the positions, inside the tile."""
    reason = why_not_triton(q, relative)
    if reason:
        raise ValueError(f'backend "triton" cannot run here: {reason}')
    from vcc.attention.kernels.relative_attention import relative_attention

    return relative_attention(
        q,
        k,
        v,
        log_counts(rows.counts),
        rows.positions.float(),
        None if relative is None else relative.table,
        scale=scale,
        starts=() if relative is None else relative.starts,
        window=window,
        consecutive=consecutive,
        dropout=dropout,
    )
