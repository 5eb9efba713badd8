"""`Rows`: the value that everything is made of. A row is a hidden vector that stands for `counts` tokens."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

UNSEEN = -1e30  # the score of a masked key: finite, and far below any real one


@dataclass(frozen=True)
class Pattern:
    """What is known about the counts of `Rows` without reading them, for compiled graphs.

    The rows come in consecutive groups, and within a group every row stands for the same number of tokens. The end of
    a group is an exception in each batch element: first at most one row that stands for fewer tokens, then padding.
    """

    groups: tuple[tuple[int, int], ...]  # (rows in the group, tokens each of them stands for)
    uneven: int  # an upper bound on the batch elements with both exceptions and full rows

    @classmethod
    def of_tokens(cls, batch: int, n: int) -> "Pattern":
        """n single tokens in each of `batch` elements, padding after them."""
        return cls(((n, 1),), batch)


@dataclass(frozen=True)
class Rows:
    """Hidden vectors, how many tokens each stands for (0 = padding), and where those tokens are on average."""

    hidden: Tensor  # (B, n, D) floating point
    counts: Tensor  # (B, n); dtype bool means that no row stands for more than one token
    positions: Tensor  # (B, n)
    pattern: Pattern | None = None  # what is known about the counts; None: nothing

    @classmethod
    def of_tokens(cls, hidden: Tensor, real: Tensor, positions: Tensor) -> "Rows":
        """Single tokens (B, n, D); real (B, n) is 0 for padding, which may be anywhere."""
        return cls(hidden, real != 0, positions)

    def __post_init__(self) -> None:
        if self.hidden.ndim != 3 or not self.hidden.is_floating_point():
            raise ValueError(
                f"Rows.hidden has shape {tuple(self.hidden.shape)} and dtype {self.hidden.dtype}; "
                "it must be a floating-point tensor of shape (batch, rows, features)"
            )
        for name, tensor in (("counts", self.counts), ("positions", self.positions)):
            if tensor.shape != self.hidden.shape[:2]:
                raise ValueError(
                    f"Rows.{name} has shape {tuple(tensor.shape)}; it must be {tuple(self.hidden.shape[:2])}, "
                    "one number per row of hidden"
                )

    def __len__(self) -> int:
        """Rows in each batch element, padding included."""
        return self.hidden.shape[1]

    @property
    def packed_tokens(self) -> bool:
        """Whether every row is known to be a single token, or padding after all of them."""
        return self.pattern == Pattern.of_tokens(*self.counts.shape)

    @property
    def single_tokens(self) -> bool:
        """Whether every row is known to be a single token, or padding anywhere."""
        return self.counts.dtype == torch.bool or self.packed_tokens

    def with_hidden(self, hidden: Tensor) -> "Rows":
        return replace(self, hidden=hidden)


def check_counts(counts: Tensor) -> None:
    bad = ~(counts >= 0)  # NaN too
    if not torch.compiler.is_compiling() and bool(bad.any()):
        raise ValueError(f"Rows.counts holds {counts[bad][0].item()}; a row stands for 0 tokens (padding) or more")


def log_counts(counts: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The paper's diagonal D and the padding mask as one additive score per key, (B, n).

    Padding is UNSEEN: if there is a real key, padding's probability is exactly zero. A batch element of padding alone
    sees all of it, to keep its softmax finite; its result is not used.
    """
    real = counts > 0
    unseen = max(UNSEEN, torch.finfo(dtype).min)
    logs = torch.where(real, counts, 1).to(dtype).log().masked_fill(~real, unseen)
    return logs.masked_fill(~real.any(1, keepdim=True), 0.0)


def running_count(mask: Tensor) -> Tensor:
    """Return how many entries of mask (B, n) are set up to and including each place: (B, n)."""
    if torch.compiler.is_compiling() and mask.shape[0] > 1:
        return _running_count(mask)
    return mask.cumsum(1)


# Opaque to the compiler, which cannot fuse a long running sum with one number per row (pytorch#180221).
@torch.library.custom_op("vcc::running_count", mutates_args=())
def _running_count(mask: Tensor) -> Tensor:
    return mask.cumsum(1)


@_running_count.register_fake
def _(mask: Tensor) -> Tensor:
    return torch.empty_like(mask, dtype=torch.int64)


def flat_index(index: Tensor, n: int) -> Tensor:
    """index (B, k) into (B, n, ...) -> (B * k,) into (B * n, ...), where copying and adding whole rows is fastest."""
    if index.shape[0] == 1:
        return index.flatten()
    return (index + n * torch.arange(index.shape[0], device=index.device)[:, None]).flatten()


def take(values: Tensor, index: Tensor) -> Tensor:
    """values (B, n, ...) at index (B, k) -> (B, k, ...)."""
    taken = values.flatten(0, 1).index_select(0, flat_index(index, values.shape[1]))
    return taken.unflatten(0, index.shape)


def take_rows(rows: Rows, index: Tensor) -> Rows:
    """The rows at index (B, k)."""
    return Rows(take(rows.hidden, index), take(rows.counts, index), take(rows.positions, index))


class _TakeOnce(torch.autograd.Function):
    """`take` where no row is taken twice. In general the gradient of `take` is a sum over all places that took the same
    row. Here each row has one place, `back`, and its gradient is looked up there, which is many times faster. A row
    that was not taken has gradient 0."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor, back: Tensor, taken: Tensor) -> Tensor:
        ctx.save_for_backward(back, taken)
        return take(values, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        back, taken = ctx.saved_tensors
        return take(grad, back).masked_fill(~taken[..., None], 0), None, None, None


def reseat_rows(rows: Rows, index: Tensor, back: Tensor, taken: Tensor) -> Rows:
    """The rows at index (B, k). Row i is taken once and goes to place back[i], if taken[i]; both are (B, n).

    For places that stay empty, `index` may be any row: they get no gradient.
    """
    hidden = _TakeOnce.apply(rows.hidden, index, back, taken)
    return Rows(hidden, take(rows.counts, index), take(rows.positions, index))


def concat_rows(*parts: Rows) -> Rows:
    """Concatenate rows. Hidden states get the dtype of the first part; mean positions of segments stay fractions."""
    patterns = [part.pattern for part in parts if part.pattern is not None]
    pattern = None
    if len(patterns) == len(parts):
        groups = tuple(group for each in patterns for group in each.groups)
        pattern = Pattern(groups, max([each.uneven for each in patterns]))
    return Rows(
        torch.cat([part.hidden.to(parts[0].hidden.dtype) for part in parts], 1),
        torch.cat([part.counts for part in parts], 1),
        torch.cat([part.positions for part in parts], 1),
        pattern,
    )


def split_rows(rows: Rows, first: int) -> tuple[Rows, Rows]:
    """The first rows and the others: the inverse of `concat_rows` of two parts."""
    patterns: list[Pattern | None] = [None, None]
    if rows.pattern is not None and rows.pattern.groups[0][0] == first:
        patterns = [
            Pattern(groups, rows.pattern.uneven) for groups in (rows.pattern.groups[:1], rows.pattern.groups[1:])
        ]
    head, tail = patterns
    return (
        Rows(rows.hidden[:, :first], rows.counts[:, :first], rows.positions[:, :first], head),
        Rows(rows.hidden[:, first:], rows.counts[:, first:], rows.positions[:, first:], tail),
    )


def pad_rows(rows: Rows, length: int) -> Rows:
    """Append rows of count 0 up to `length` rows."""
    missing = length - rows.hidden.shape[1]
    if isinstance(missing, int) and missing == 0:  # in an exported program it is a symbol
        return rows
    return Rows(
        F.pad(rows.hidden, (0, 0, 0, missing)),
        F.pad(rows.counts, (0, missing)),
        F.pad(rows.positions, (0, missing)),
    )


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype for sums over many layers: float64 for a float64 model, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32
