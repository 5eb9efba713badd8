"""Attention between rows by its definition. Every other backend is tested against it."""

import torch
from torch import Tensor
from torch.nn import functional as F

from vcc.attention.scoring import Scoring, local_bias
from vcc.core.rows import Rows, log_counts


def attend_reference(q: Tensor, k: Tensor, v: Tensor, rows: Rows, scoring: Scoring) -> Tensor:
    """softmax(scale q k^T + log(counts) + biases) v, in float32 or float64."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    distance = scoring.distances(rows)
    bias = log_counts(rows.counts, dtype)[:, None]  # (B, 1, r)
    if scoring.window is not None:
        bias = local_bias(bias[:, 0], distance, scoring.window, scoring.first)  # (B, r, r)
    scores = scoring.scale_of(q) * q.to(dtype) @ k.to(dtype).mT + bias[:, None]
    if scoring.relative is not None:
        table, bucket = scoring.relative.table.to(dtype), scoring.relative.buckets(distance).long()
        scores = scores + table[bucket].permute(0, 3, 1, 2)
    if scoring.bias is not None:
        scores = scores + scoring.bias.to(dtype)
    return (F.dropout(scores.softmax(-1), scoring.dropout) @ v.to(dtype)).to(q.dtype)
