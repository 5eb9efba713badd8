"""Means at the norm of a token.

The mean of several tokens is shorter than each of them. Layers that normalise what they read do not notice. Layers that
normalise their output only (post-norm, as in BERT) do: such a mean is a weak query and a weak key.
"""

import torch

from vcc.core.rows import Rows, sum_dtype


def at_token_norm(rows: Rows, tokens: Rows) -> Rows:
    """Scale rows that stand for several tokens to the mean norm of `tokens`. All other rows are unchanged; with no
    token all are."""
    dtype = sum_dtype(rows.hidden.dtype)
    real = (tokens.counts > 0).to(dtype)
    norms = torch.linalg.vector_norm(tokens.hidden, dim=2, dtype=dtype)
    wanted = (norms * real).sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)  # (B, 1)
    own = torch.linalg.vector_norm(rows.hidden, dim=2, dtype=dtype)
    scaled = (rows.counts > 1) & (own > 0) & (wanted > 0)
    factor = torch.where(scaled, wanted / own.clamp(min=torch.finfo(dtype).tiny), 1)
    return rows.with_hidden(rows.hidden * factor[..., None].to(rows.hidden.dtype))
