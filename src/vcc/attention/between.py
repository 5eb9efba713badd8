"""Attention of some rows to others, where each key has the weight of the tokens it stands for."""

import torch
from torch import Tensor
from torch.nn import functional as F

from vcc.attention.scoring import Scoring
from vcc.core.rows import Rows, log_counts


def attend_between(q: Tensor, k: Tensor, v: Tensor, rows: Rows, keys: Rows, scoring: Scoring) -> Tensor:
    """q (B, H, r, d) of `rows`, k and v (B, H, m, d) of `keys` -> (B, H, r, d). Scoring without a window."""
    if torch.is_autocast_enabled(q.device.type):
        q, k, v = (part.to(torch.get_autocast_dtype(q.device.type)) for part in (q, k, v))
    dtype = torch.promote_types(q.dtype, torch.float32) if q.device.type == "cpu" else q.dtype
    mask = log_counts(keys.counts, torch.promote_types(q.dtype, torch.float32))[:, None, None].to(dtype)
    if scoring.relative is not None:
        mask = mask + scoring.relative.between(rows.positions, keys.positions).to(dtype)
    if scoring.bias is not None:
        mask = mask + scoring.bias.to(dtype)
    shape = (*q.shape[:1], mask.shape[1], q.shape[2], k.shape[2])
    return F.scaled_dot_product_attention(q, k, v, mask.expand(shape), scoring.dropout, scale=scoring.scale_of(q))
