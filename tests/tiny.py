"""A tiny Transformer in plain torch: the first host of the algorithm, and the tests' own dense model."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vcc import Rows
from vcc.core.rows import log_counts
from vcc.core.score import vip_attention


class TinyHost(nn.Module):
    """Pre-norm or post-norm layers with multi-head attention. Nothing here knows about compression but log(counts).

    With `distance` a key's score falls with its distance from the query, so that positions matter too.
    """

    def __init__(
        self, layers: int = 3, width: int = 8, heads: int = 2, pre_norm: bool = True, distance: float = 0.0
    ) -> None:
        super().__init__()
        self.heads, self.pre_norm, self.distance = heads, pre_norm, distance
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.norm1 = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.norm2 = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))

    @property
    def num_layers(self) -> int:
        return len(self.qkv)

    def project(self, index: int, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.norm1[index](hidden) if self.pre_norm else hidden
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv[index](x).chunk(3, dim=2))
        return q, k, v

    def bias(self, queries: Rows, keys: Rows) -> Tensor:
        """(B, 1, p, m)"""
        gap = (queries.positions[:, None, :, None] - keys.positions[:, None, None]).abs()
        return -self.distance * gap.to(torch.promote_types(queries.hidden.dtype, torch.float32))

    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        q, (_, k, _) = self.project(index, vips.hidden)[0], self.project(index, nodes.hidden.to(vips.hidden.dtype))
        return vip_attention(q, k, vips, nodes, q.shape[-1] ** -0.5, self.bias(vips, nodes))

    def layer(self, index: int, rows: Rows, consecutive: bool = False) -> Tensor:
        x = rows.hidden
        q, k, v = self.project(index, x)
        logits = q @ k.mT * q.shape[-1] ** -0.5 + self.bias(rows, rows).to(q.dtype)
        logits = logits + log_counts(rows.counts, q.dtype)[:, None, None]
        x = x + self.out[index]((logits.softmax(-1) @ v).transpose(1, 2).flatten(2))
        if self.pre_norm:
            return x + self.down[index](F.gelu(self.up[index](self.norm2[index](x))))
        x = self.norm1[index](x)
        return self.norm2[index](x + self.down[index](F.gelu(self.up[index](x))))


def tiny_host(seed: int = 0, dtype: torch.dtype = torch.float64, **kwargs: object) -> TinyHost:
    torch.manual_seed(seed)
    return TinyHost(**kwargs).to(dtype).eval()  # type: ignore[arg-type]


def random_rows(batch: int, n: int, width: int = 8, seed: int = 0, dtype: torch.dtype = torch.float64) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(batch, n, width, generator=generator, dtype=torch.float64).to(dtype)
    positions = torch.arange(n, dtype=torch.float64).expand(batch, n).to(dtype)
    return Rows(hidden, torch.ones(batch, n, dtype=dtype), positions)


def dense(host: TinyHost, rows: Rows) -> Tensor:
    """Every layer on the whole sequence: what the algorithm approximates."""
    for index in range(host.num_layers):
        rows = rows.with_hidden(host.layer(index, rows))
    return rows.hidden
