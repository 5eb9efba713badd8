"""A document's tree in 6 bits a number, in memory and on disk.

Counts and positions follow from the length. Packing what was unpacked gives the same bits, so an index answers alike
before and after it was stored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vcc.core.rows import Rows
from vcc.core.tree import SegmentTree, build_tree, check_scales, tree_from_parts, tree_parts
from vcc.qa.six_bits import STEPS, pack, unpack


@dataclass(frozen=True, eq=False)
class PackedTree:
    """The tree of one document of single tokens."""

    scales: tuple[int, ...]
    length: int
    width: int  # numbers of a vector
    parts: Mapping[str, Tensor]  # by the names of `tree_parts`: values, and their steps

    def __post_init__(self) -> None:
        """Raise a ValueError for parts that do not fit scales, length and width."""
        check_scales(self.scales)
        names = ["means", *(f"differences.{depth}" for depth in range(len(self.scales) - 1))]
        if set(self.parts) != {*names, *(name + STEPS for name in names)}:
            raise ValueError(f"parts {sorted(self.parts)} do not fit the scales {self.scales}")
        roots = -(-self.length // self.scales[0])
        for name, scale in zip(names, self.scales, strict=True):
            rows = roots * self.scales[0] // scale
            found = tuple(self.parts[name].shape), tuple(self.parts[name + STEPS].shape)
            if found != ((rows, 3 * -(-self.width // 4)), (rows,)):
                raise ValueError(f"{name} has shapes {found}: they do not fit {self.length} rows of {self.width}")

    @classmethod
    def of(cls, trees: Iterable[SegmentTree]) -> "PackedTree":
        """Join the trees of consecutive pieces of a document; all but the last have whole coarsest nodes.

        A bytearray grows where it is: joined at the end, the pieces would take twice their memory.
        """
        grown: dict[str, bytearray] = {}
        last: dict[str, Tensor] = {}
        scales: tuple[int, ...] = (1,)
        length = width = 0
        for tree in trees:
            scales, length, width = tree.scales, length + tree.length, tree.means.shape[2]
            for name, part in vectors_of_tree(tree).items():
                last[name], last[name + STEPS] = pack(part[0].cpu())
            for name, packed in last.items():
                grown.setdefault(name, bytearray()).extend(packed.contiguous().numpy().data.cast("B"))
        parts = {
            name: torch.frombuffer(grown[name], dtype=packed.dtype).view(-1, *packed.shape[1:])
            for name, packed in last.items()
        }
        return cls(scales, length, width, parts)

    def tree(self, device: torch.device | str = "cpu") -> SegmentTree:
        """The tree in 32 bits."""
        places = torch.arange(self.length)[None]
        empty = build_tree(
            Rows(torch.empty(1, self.length, 0), torch.ones(1, self.length), places.float()), self.scales
        )
        vectors = {
            name: unpack(self.parts[name], self.parts[name + STEPS], self.width)[None]
            for name in vectors_of_tree(empty)
        }
        parts = {name: part.to(device) for name, part in (tree_parts(empty) | vectors).items()}
        return tree_from_parts(self.scales, self.length, parts)


def vectors_of_tree(tree: SegmentTree) -> dict[str, Tensor]:
    return {name: part for name, part in tree_parts(tree).items() if part.dim() == 3}
