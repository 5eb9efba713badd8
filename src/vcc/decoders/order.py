"""`order_by_key`: similar keys side by side, so a segment's mean represents all of them.

By position, a token with much attention (a sink) would be averaged with neighbours that have none, and be lost.
"""

import torch
from torch import Tensor

from vcc.core.rows import sum_dtype

SQUARINGS = 3  # the eighth power of the products of keys: the axis only has to be good enough for splitting


def order_by_key(keys: Tensor, leaf: int) -> Tensor:
    """An order of keys (..., n, D) in which each leaf's keys are similar, as a permutation (..., n).

    Keys are split at the median along their main axis, and each half again, until a part is one leaf. Parts have whole
    numbers of leaves, as equal as possible; only the last leaf may be short. The order is deterministic.
    """
    n = keys.shape[-2]
    flat = keys.detach().reshape(-1, n, keys.shape[-1])  # (G, n, D)
    if flat.dtype == torch.float16:  # squares of keys would overflow
        flat = flat.float()
    order = torch.arange(n, device=keys.device).expand(len(flat), n).contiguous()
    parts = [(0, n)]
    while parts := [part for part in parts if part[1] > leaf]:
        halves = []
        for size in sorted({size for _, size in parts}):  # parts of a level have few sizes: each is one batch
            starts = torch.tensor([start for start, other in parts if other == size], device=keys.device)
            places = (starts[:, None] + torch.arange(size, device=keys.device)).flatten()
            inside = order[:, places]
            members = flat.gather(1, inside[..., None].expand(-1, -1, flat.shape[-1]))
            along = along_main_axis(members.unflatten(1, (len(starts), size)))
            sorted_inside = inside.unflatten(1, (len(starts), size)).gather(2, along.sort(dim=2, stable=True).indices)
            order[:, places] = sorted_inside.flatten(1)
            left = (-(-size // leaf) + 1) // 2 * leaf
            halves += [half for start in starts.tolist() for half in ((start, left), (start + left, size - left))]
        parts = halves
    return order.view(keys.shape[:-1])


def along_main_axis(keys: Tensor) -> Tensor:
    """The coordinates of keys (..., n, D) along their main axis, (..., n), up to a factor.

    Power iteration with the products of all pairs of keys, or of all pairs of coordinates where these are fewer: the
    keys themselves are read but a few times, in the type they came in. It starts from the coordinate that varies most,
    which the main axis is seldom orthogonal to, and points up it.
    """
    n, width = keys.shape[-2:]
    centred = keys - keys.mean(-2, keepdim=True)
    if n <= width:
        widest = torch.linalg.vector_norm(centred, dim=-2).argmax(-1)
        return (power(centred @ centred.mT) @ column(centred, widest).to(sum_dtype(keys.dtype)))[..., 0]
    products = centred.mT @ centred
    widest = products.diagonal(dim1=-2, dim2=-1).argmax(-1)
    axis = column(power(products), widest)  # as if the first coordinate had been multiplied once less
    return (centred @ axis.to(centred.dtype))[..., 0]


def power(products: Tensor) -> Tensor:
    """(..., m, m), symmetric, to the power of 2**SQUARINGS, up to a factor."""
    wide = products.to(sum_dtype(products.dtype))
    trace = wide.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    wide = wide / trace.clamp(min=torch.finfo(wide.dtype).tiny)  # the largest eigenvalue is 1 / m at least, 1 at most
    for _ in range(SQUARINGS):
        wide = wide @ wide
    return wide


def column(matrices: Tensor, which: Tensor) -> Tensor:
    """Column which (...) of matrices (..., n, m): (..., n, 1)."""
    return matrices.gather(-1, which[..., None, None].expand(*matrices.shape[:-1], 1))
