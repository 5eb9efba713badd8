"""What `attention.py` checks and times: the attention of one layer, in common model sizes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vcc.core.rows import Pattern, Rows

HEADS, FEATURES = 12, 64
BF16 = torch.bfloat16


@dataclass(frozen=True)
class Problem:
    """One layer's attention: compressed rows of a long text, or windows of neighbouring tokens."""

    name: str
    batch: int
    r: int
    tokens: int = 0  # 0: windows
    vips: int = 0
    opened: int = 0

    @property
    def flops(self) -> float:
        return 4.0 * self.batch * HEADS * self.r**2 * FEATURES

    def rows(self, ragged: bool = False) -> Rows:
        generator = torch.Generator().manual_seed(0)
        if self.tokens:
            nodes = self.tokens // 16
            opened = torch.randperm(nodes, generator=generator)[: self.opened].sort().values
            closed = torch.ones(nodes, dtype=torch.bool)
            closed[opened] = False
            children = (opened[:, None] * 16 + torch.arange(16)).flatten()
            positions = torch.cat([torch.arange(self.vips), closed.nonzero().squeeze(1) * 16 + 7.5, children])
            counts = torch.ones(self.r)
            counts[self.vips : self.vips + nodes - self.opened] = 16
            positions, counts = positions.expand(self.batch, -1), counts.repeat(self.batch, 1)
        else:
            positions = torch.arange(self.batch * self.r).view(self.batch, self.r)
            counts = torch.ones(self.batch, self.r)
        if ragged:
            counts[-1, -self.r // 5 :] = 0
        return Rows(torch.zeros(self.batch, self.r, 1).cuda(), counts.cuda(), positions.float().cuda())

    @property
    def pattern(self) -> Pattern:
        if not self.tokens:
            return Pattern.of_tokens(1, self.r)
        closed = self.tokens // 16 - self.opened
        return Pattern(((self.vips, 1), (closed, 16), (16 * self.opened, 1)), self.batch)

    def heads(self, dtype: torch.dtype, heads: int = HEADS, features: int = FEATURES) -> list[Tensor]:
        """q, k, v and the gradient of the output, as a layer has them: (B, r, H, d) seen as (B, H, r, d)."""
        shape = (self.batch, self.r, heads, features)
        return [torch.randn(shape, device="cuda").to(dtype).transpose(1, 2) for _ in range(4)]


def compressed(name: str, tokens: int, vips: int, opened: int, batch: int = 1) -> Problem:
    return Problem(name, batch, vips + tokens // 16 - opened + 16 * opened, tokens, vips, opened)


LONG = compressed("128K", 131072, 48, 90)
MIDDLE = compressed("16K", 16384, 32, 90)
SHORT = compressed("4K", 4096, 288, 80)
WINDOWS = [Problem(f"{number} windows", number, 512) for number in (8, 32, 256)]
PROBLEMS = [SHORT, MIDDLE, LONG, *WINDOWS]


def random_table() -> Tensor:
    return torch.randn(32, HEADS, device="cuda") * 0.5


def message_of(problem: BaseException) -> str:
    """The error in one short line."""
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text[:160]}"
