"""The rows of one scale of a tree on disk: unpacked when they are taken, and kept aside when they are changed.

A cut takes blocks of rows and adds to them; the rest of a tensor's interface is not needed, and is not there. So a
question on a document of millions of tokens unpacks some thousand rows.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from vcc.qa.six_bits import unpack


@dataclass(frozen=True, eq=False)
class RowFile:
    """Rows (m, D), packed, and those that a question has changed."""

    values: Tensor  # (m, bytes)
    steps: Tensor  # (m,)
    width: int  # D
    changed: dict[int, Tensor] = field(default_factory=dict)  # row -> (D,)

    def take(self, rows: Tensor) -> Tensor:
        """(k, D) in 32 bits."""
        found = unpack(self.values.index_select(0, rows), self.steps.index_select(0, rows), self.width)
        if self.changed:
            for place, row in enumerate(rows.tolist()):
                if (own := self.changed.get(row)) is not None:
                    found[place] = own
        return found

    def add(self, rows: Tensor, values: Tensor) -> None:
        """Add (k, D) to rows (k,), none of them twice."""
        self.changed.update(zip(rows.tolist(), self.take(rows) + values, strict=True))


@dataclass(frozen=True, eq=False)
class PackedRows:
    """What a tree needs of a tensor (1, m, D), or of a view of it (1, m / f, f, D) or (1, m / f, f * D)."""

    rows: RowFile
    block: int = 0  # f; 0: single rows
    joined: bool = False  # the rows of a block are one
    requires_grad = False

    @classmethod
    def of(cls, values: Tensor, steps: Tensor, width: int) -> "PackedRows":
        return cls(RowFile(values, steps, width))

    @property
    def shape(self) -> tuple[int, ...]:
        number, width = len(self.rows.values), self.rows.width
        if not self.block:
            return 1, number, width
        blocks = number // self.block
        return (1, blocks, self.block * width) if self.joined else (1, blocks, self.block, width)

    def unflatten(self, dim: int, sizes: tuple[int, int]) -> "PackedRows":
        assert dim == 1 and not self.block
        return replace(self, block=sizes[1])

    def flatten(self, first: int, last: int = -1) -> "PackedRows":
        """(0, 1): a batch of one stays as it is; from 2 on: the rows of a block become one."""
        return self if (first, last) == (0, 1) else replace(self, joined=True)

    def view(self, shape: tuple[int, ...]) -> "PackedRows":
        return self if shape == self.shape else replace(self, block=0, joined=False)

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """The blocks (k, ...) at index (k,), or with dim 1 as a batch of one (1, k, ...)."""
        found = self.rows.take(self.inside(index))
        if self.block:
            found = found.unflatten(0, (len(index), self.block))
            found = found.flatten(1) if self.joined else found
        return found if dim == 0 else found[None]

    def index_add_(self, dim: int, index: Tensor, values: Tensor) -> "PackedRows":
        assert dim == 0
        self.rows.add(self.inside(index), values.reshape(-1, self.rows.width))
        return self

    def inside(self, index: Tensor) -> Tensor:
        """The rows of the blocks at index (k,)."""
        if not self.block:
            return index
        return (index[:, None] * self.block + torch.arange(self.block)).flatten()

    def narrow(self, dim: int, start: int, length: int) -> Tensor:
        """Some consecutive rows, (1, length, D) in 32 bits."""
        assert dim == 1 and not self.block
        return self.rows.take(torch.arange(start, start + length))[None]

    def unpacked(self) -> Tensor:
        """All rows, (1, m, D) in 32 bits."""
        return self.narrow(1, 0, self.shape[1])
