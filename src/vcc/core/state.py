"""The state between two layers: windows in the first layers, VIPs and a tree in the others.

`whole` rebuilds the sequence in its original order: O(n D), needed at the end and by watchers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vcc.core.rows import Rows, concat_rows
from vcc.core.tree import SegmentTree, flatten_tree
from vcc.core.vips import Layout, join_vips, unseat
from vcc.core.windows import WindowLayout, join_windows, split_windows


@dataclass(frozen=True)
class Windowed:
    """VIPs and context, or both as one part, or one of them alone: each part is split into windows."""

    parts: tuple[Rows, ...]  # (windows, size) rows each
    windows: tuple[WindowLayout, ...]  # for each part, where its windows belong
    layout: Layout | None = None  # where the rows of all parts belong in the whole; None: where they are
    vips: int = 0  # of the one part, so many first rows, which every row sees: its windows slide, it is not split

    @classmethod
    def split(cls, parts: Sequence[Rows], size: int, layout: Layout | None = None) -> "Windowed":
        pieces, windows = zip(*(split_windows(part, size) for part in parts), strict=True)
        return cls(pieces, windows, layout)

    def joined(self) -> list[Rows]:
        """The parts, out of their windows."""
        return [join_windows(*each) for each in zip(self.parts, self.windows, strict=True)]

    def whole(self) -> Rows:
        rows = concat_rows(*self.joined())
        return rows if self.layout is None else unseat(rows, self.layout)


@dataclass(frozen=True)
class Compressed:
    """The VIPs, and the context as a tree."""

    vips: Rows
    tree: SegmentTree
    layout: Layout | None = None  # where [VIPs; context] belong in the whole; None: the context alone is the whole

    def whole(self) -> Rows:
        context = flatten_tree(self.tree)
        return context if self.layout is None else join_vips(self.vips, context, self.layout)
