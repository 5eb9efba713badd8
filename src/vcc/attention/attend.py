"""`attend`: attention between rows, where each key has the weight of the tokens it stands for.

    softmax(scale q k^T + log(counts of the keys) + biases) v                                         (B, H, r, d)

One operation, several kernels: every backend is a function of the same signature, in a file of its own, and a row of
`BACKENDS`. All of them agree up to rounding.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from vcc.attention.reference import attend_reference
from vcc.attention.scoring import Scoring
from vcc.attention.sdpa import attend_sdpa, cudnn_masks
from vcc.attention.triton import attend_triton, why_not_triton
from vcc.core.rows import Rows

BACKENDS: dict[str, Callable[[Tensor, Tensor, Tensor, Rows, Scoring], Tensor]] = {
    "reference": attend_reference,
    "sdpa": attend_sdpa,
    "triton": attend_triton,
}
DEFAULT = Scoring()


def attend(q: Tensor, k: Tensor, v: Tensor, rows: Rows, scoring: Scoring = DEFAULT, backend: str = "auto") -> Tensor:
    """q, k, v (B, H, r, d), one for each row -> (B, H, r, d). Only the counts and positions of `rows` are used.

    `backend`: a name of `BACKENDS`, or "auto", the fastest of them for these tensors.
    """
    if q.shape != k.shape or q.shape != v.shape or q.shape[::2] != rows.counts.shape:
        raise ValueError(
            f"attend was given q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} and "
            f"{tuple(rows.counts.shape)} rows; it needs three times (B, H, r, d) and (B, r) rows"
        )
    heads = q.shape[1] if scoring.relative is None else scoring.relative.table.shape[1]
    if heads != q.shape[1]:
        raise ValueError(f"the relative bias has {heads} heads; the queries have {q.shape[1]}")
    if backend != "reference" and torch.is_autocast_enabled(q.device.type):
        q, k, v = (part.to(torch.get_autocast_dtype(q.device.type)) for part in (q, k, v))
    if backend == "auto":
        backend = fastest(q, scoring)
    if backend not in BACKENDS:
        raise ValueError(f"backend is {backend!r}; it must be one of {', '.join(map(repr, ['auto', *BACKENDS]))}")
    return BACKENDS[backend](q, k, v, rows, scoring)


def fastest(q: Tensor, scoring: Scoring) -> str:
    """Return the backend for "auto"."""
    if not q.is_cuda or why_not_triton(q, scoring):
        return "sdpa"
    if scoring.relative is not None or scoring.window is not None:
        return "triton"  # in float32 it is no faster, but it needs no (r, r) matrix
    return "sdpa" if q.dtype == torch.float32 or cudnn_masks(q) else "triton"
