"""PyTorch's own kernels, which run on every device."""

import torch
from torch import Tensor
from torch.nn import functional as F

from vcc.attention.scoring import Scoring, local_bias
from vcc.attention.unmasked import attend_unmasked
from vcc.constant_result import constant_result
from vcc.core.rows import UNSEEN, Rows, log_counts

FOLDED = 8  # extra head dimensions for the bias per key; flash kernels need a multiple of 8


def attend_sdpa(q: Tensor, k: Tensor, v: Tensor, rows: Rows, scoring: Scoring) -> Tensor:
    """A bias that differs between queries has to be a matrix; a bias per key need not."""
    r, d = q.shape[2:]
    if scoring.ordered and scoring.bias is None:
        return attend_ordered(q, k, v, rows, scoring)
    scale, dropout = scoring.scale_of(q), scoring.dropout
    bias = log_counts(rows.counts, torch.promote_types(q.dtype, torch.float32))
    # On a CPU every kernel takes a float32 mask; on CUDA it must have the dtype of the queries.
    mask_dtype = torch.promote_types(q.dtype, torch.float32) if q.device.type == "cpu" else q.dtype
    matrix = None  # (B or 1, H or 1, r, r)
    if scoring.relative is not None:
        relative, places = scoring.relative, rows.positions
        matrix = (relative.among(r) if scoring.consecutive else relative.between(places, places)).to(mask_dtype)
    if scoring.bias is not None:
        given = scoring.bias.to(mask_dtype)
        matrix = given if matrix is None else matrix + given
    if scoring.window is not None:
        local = local_bias(bias, scoring.distances(rows), scoring.window, scoring.first)[:, None].to(mask_dtype)
        matrix = local if matrix is None else matrix + local
        return F.scaled_dot_product_attention(q, k, v, matrix, dropout, scale=scale)
    if matrix is None and dropout == 0.0 and cudnn_masks(q):
        found = attend_unmasked(q, k, v, rows, scale)
        if found is not None:
            return found
    if matrix is None and (q.device.type == "cpu" or q.dtype not in (torch.bfloat16, torch.float16) or cudnn_masks(q)):
        # A shift does not change the softmax. After this one the rest of the largest bias has 16 bits of its own, and
        # that of single tokens is exact: with two scales nothing is rounded.
        shift = bias.amax(1, keepdim=True).to(mask_dtype).to(bias.dtype)
        mask = (bias - shift)[:, None, None].to(mask_dtype)
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
    q, k, v = fold(q, k, v, bias, scale)
    return F.scaled_dot_product_attention(q, k, v, matrix, dropout, scale=scale)[..., :d]


def attend_ordered(q: Tensor, k: Tensor, v: Tensor, rows: Rows, scoring: Scoring) -> Tensor:
    """The first rows attend to all. The others, in blocks as long as the window, attend to the first rows, their own
    block and the blocks beside it: work and memory are linear in the rows."""
    first, window, scale, dropout = scoring.first, scoring.window, scoring.scale_of(q), scoring.dropout
    assert window is not None
    relative, places = scoring.relative, rows.positions
    mask_dtype = torch.promote_types(q.dtype, torch.float32) if q.device.type == "cpu" else q.dtype
    bias = log_counts(rows.counts, torch.promote_types(q.dtype, torch.float32))

    ahead = q[:, :, :first]
    if first:
        every = bias[:, None, None].expand(-1, 1, first, -1).to(mask_dtype)
        if relative is not None:
            every = every + relative.between(places[:, :first], places).to(mask_dtype)
        ahead = F.scaled_dot_product_attention(ahead, k, v, every, dropout, scale=scale)
    if first == q.shape[2]:
        return ahead

    batch, _, r, _ = q.shape
    size = max(window, 1)
    asking = (
        F.pad(q[:, :, first:], (0, 0, 0, -(r - first) % size)).unflatten(2, (-1, size)).transpose(1, 2).flatten(0, 1)
    )
    number = len(asking) // batch  # of blocks

    def beside(values: Tensor) -> Tensor:
        """(B, ..., r, d) -> (B * blocks, ..., first + 3 size, d): what a block sees, and what is too far for some."""
        own = blocks_of(values[..., first:, :], size).movedim(-3, 1).flatten(0, 1)
        return torch.cat([values[..., :first, :].repeat_interleave(number, 0, output_size=len(own)), own], -2)

    about = torch.stack([places.to(bias.dtype), bias, torch.ones_like(bias)], -1)  # zeros beyond the edges
    position, seen, real = beside(about).unbind(-1)  # (B * blocks, first + 3 size)
    middle = position[:, first + size : first + 2 * size]
    key = torch.arange(position.shape[1], device=q.device)
    far = ((position[:, None] - middle[:, :, None]).abs() > window) & (key >= first) | (real == 0)[:, None]
    itself = key == first + size + torch.arange(size, device=q.device)[:, None]  # so that padding sees something
    mask = seen[:, None].masked_fill(far, UNSEEN).masked_fill(itself, 0.0)[:, None].to(mask_dtype)
    if relative is not None:
        mask = mask + relative.between(middle, position).to(mask_dtype)
    near = F.scaled_dot_product_attention(asking, beside(k), beside(v), mask, dropout, scale=scale)
    near = near.unflatten(0, (batch, number)).transpose(1, 2).flatten(2, 3)[:, :, : r - first]
    return torch.cat([ahead, near], 2)


def blocks_of(values: Tensor, size: int) -> Tensor:
    """(..., n, d) -> (..., blocks, 3 size, d): each block of `size` rows between its neighbours, zeros beyond the
    edges."""
    padded = F.pad(values, (0, 0, size, size + -values.shape[-2] % size))
    return padded.unfold(-2, 3 * size, size).transpose(-1, -2)


def fold(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v with FOLDED more head dimensions, so that scale q k^T gains `bias` (B, r) per key.

    The queries get ones and the keys bias / scale, in three summands if one would be rounded to 8 bits.
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


def cudnn_masks(q: Tensor) -> bool:
    """Whether to use cuDNN's kernel, the fastest with a bias per key: in 16 bits, on Hopper and later, and only in
    compiled graphs, whose shapes are fixed, because planning a new shape takes longer than it saves."""
    half = q.dtype in (torch.bfloat16, torch.float16)
    known = half and q.is_cuda and q.shape[-1] % 8 == 0 and q.shape[-1] <= 128 and torch.compiler.is_compiling()
    return known and _prefers_cudnn(q.device)


@constant_result
def _prefers_cudnn(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] >= 9 and torch.backends.cuda.cudnn_sdp_enabled()
