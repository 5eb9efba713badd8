"""Attention over chosen blocks: queries and keys in blocks of equal length, some pairs of blocks computed exactly.

    out_i = sum_j w_ij v_j / sum_j w_ij        w_ij = exp(scale q_i k_j)      where the pair of blocks (x, y) was chosen
                                               w_ij = exp(scale q_x k_y)      elsewhere, of the blocks' means; or 0

With every pair chosen it is dense attention. Shapes: N = batch x heads, X blocks of b tokens, d features, M pairs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

LOWEST = torch.finfo(torch.float32).min


@dataclass(frozen=True)
class AttentionBlocks:
    """Queries, keys and values in blocks; padding is zero and ignored."""

    q: Tensor  # (N, X, b, d)
    k: Tensor  # (N, X, b, d)
    v: Tensor  # (N, X, b, d)
    real: Tensor  # (N, X, b), whether a token is one
    scale: float

    @staticmethod
    def of(q: Tensor, k: Tensor, v: Tensor, real: Tensor, block: int, scale: float) -> "AttentionBlocks":
        """From (N, n, d) and a mask (N, n); the last block is filled with padding."""
        fill = -q.shape[1] % block
        real = torch.nn.functional.pad(real, (0, fill))
        shaped = [
            (torch.nn.functional.pad(one, (0, 0, 0, fill)) * real[..., None]).unflatten(1, (-1, block))
            for one in (q, k, v)
        ]
        return AttentionBlocks(shaped[0], shaped[1], shaped[2], real.unflatten(1, (-1, block)), scale)

    @property
    def counts(self) -> Tensor:
        """Real tokens of every block (N, X)."""
        return self.real.sum(-1)

    def coarse(self) -> Tensor:
        """Scores between the means of blocks (N, X, X), in float32 or better; the lowest where no key is real."""
        counts = self.counts.clamp(min=1)[..., None]
        means = [wide(one).sum(2) / counts for one in (self.q, self.k)]
        scores = means[0] @ means[1].transpose(1, 2) * self.scale
        return scores.masked_fill((self.counts == 0)[:, None, :], LOWEST)


def wide(tensor: Tensor) -> Tensor:
    """In float32 at least: sums of many exponentials lose too much in half precision."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def pairs_of(wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Chosen pairs (N, X, X) as lists: rows, columns (N, M), and which of the M are pairs and not filling."""
    flat = wanted.flatten(1)
    most = int(flat.sum(1).max())
    found, places = flat.to(torch.uint8).topk(most, dim=1)
    width = wanted.shape[-1]
    return places // width, places % width, found.bool()


def attend_blocks(blocks: AttentionBlocks, wanted: Tensor, rest: Tensor | None = None) -> Tensor:
    """(N, X b, d). `wanted` (N, X, X): the pairs computed exactly. `rest` (N, X, X): the scores that stand for the
    others, from `coarse`; without, they do not count."""
    N, X, b, d = blocks.q.shape
    rows, columns, kept = pairs_of(wanted & (blocks.counts > 0)[:, None, :])
    each = torch.arange(N, device=rows.device)[:, None]
    logits = wide(blocks.q[each, rows] @ blocks.k[each, columns].transpose(2, 3)) * blocks.scale  # (N, M, b, b)
    seen = blocks.real[each, columns] & kept[..., None]  # (N, M, b), the keys
    logits = logits.masked_fill(~seen[:, :, None, :], LOWEST)

    place = rows[..., None].expand(-1, -1, b)  # (N, M, b)
    top = logits.detach().amax(-1)
    highest = torch.full((N, X, b), LOWEST, dtype=logits.dtype, device=logits.device)
    highest = highest.scatter_reduce(1, place, top, "amax")  # (N, X, b), of the exact part
    if rest is not None:
        others = rest.masked_fill(wanted, LOWEST)  # (N, X, X)
        peak = others.detach().amax(-1)  # (N, X)
        highest = torch.maximum(highest, peak[..., None])

    weights = torch.exp(logits - highest[each, rows][..., None]) * seen[:, :, None, :]  # (N, M, b, b)
    values = (weights.to(blocks.v.dtype) @ blocks.v[each, columns]).to(weights.dtype)  # (N, M, b, d)
    out = torch.zeros(N, X, b, d, dtype=weights.dtype, device=weights.device)
    out = out.scatter_add(1, place[..., None].expand(-1, -1, -1, d), values)
    total = torch.zeros_like(highest).scatter_add(1, place, weights.sum(-1))
    if rest is not None:
        share = torch.exp(others - peak[..., None]) * (others > LOWEST)  # (N, X, X)
        factor = torch.exp(peak[..., None] - highest)  # (N, X, b)
        sums = wide(blocks.v).sum(2)  # (N, X, d)
        out = out + factor[..., None] * (share @ sums)[:, :, None, :]
        total = total + factor * (share @ blocks.counts[..., None].to(share.dtype))
    out = out / total.clamp(min=torch.finfo(total.dtype).tiny)[..., None]
    return out.to(blocks.q.dtype).flatten(1, 2)
