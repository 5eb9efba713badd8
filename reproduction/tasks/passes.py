"""Forward passes of a few fixed shapes, because a model is compiled for each: which items share one, and its shape."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reproduction.tasks.packed import LongItem
from reproduction.tasks.rows import LaidRow, LongBatch, Shape, Specials, collate, lay, room_of, texts_of
from reproduction.tasks.specs import Kind, ReadingWay
from vcc.errors import ModelError

TOKENS = 131_072  # in a forward pass, with padding; a step has one or several
PARTS = (4, 2, 1)  # a shape is this part of the longest row, or of the most rows
VIPS = 32  # their number is rounded up to a multiple


@dataclass(frozen=True)
class Laying:
    """How the items of a cell become forward passes."""

    kind: Kind
    way: ReadingWay
    specials: Specials
    row: int
    shapes: tuple[Shape, ...]
    vips: int  # in a row at most

    @staticmethod
    def of(
        items: Sequence[LongItem],
        kind: Kind,
        way: ReadingWay,
        specials: Specials,
        row: int,
        length: int,
        batch: int,
        tokens: int = TOKENS,
    ) -> "Laying":
        """Shapes for these items, of which a row has at most `length` tokens and a pass at most `batch` items."""
        layout = way.layout
        if layout == "first":
            shapes = {(batch, row)}
        elif layout == "chunks":
            most = max(-(-one.length // room_of(one, kind, layout, row)) for one in items)
            rows = max(most, min(tokens // row, batch * most))
            shapes = {(-(-rows // part), row) for part in PARTS}
        else:
            widths = sorted({-(-length // (part * row)) * row for part in PARTS})
            # those that no item needs would be compiled in vain
            used = {next(n for n in widths if n >= width(one, kind, way, row)) for one in items}
            shapes = {(max(1, min(tokens // n, batch)), n) for n in used}
        texts = max(1 + sum(len(text) + 1 for text in texts_of(one, kind, layout)) for one in items)
        vips = -(-length // row) if layout == "stretches" else texts
        return Laying(kind, way, specials, row, tuple(sorted(shapes)), -(-vips // VIPS) * VIPS)

    def passes(self, items: Sequence[LongItem]) -> list[tuple[list[int], LongBatch]]:
        """Every item once: the numbers of those in each pass, and the pass."""
        laid = [self.lay(item) for item in items]
        sizes = [(len(rows), max(len(one.ids) for one in rows)) for rows in laid]
        return [
            (some, self.collate([items[i] for i in some], [laid[i] for i in some], shape))
            for some, shape in fill(sizes, self.shapes)
        ]

    def one_of_each(self, items: Sequence[LongItem]) -> list[LongBatch]:
        """A pass of each shape, nearly empty."""
        shortest = min(items, key=lambda one: one.length)
        return [self.collate([shortest], [self.lay(shortest)], shape) for shape in self.shapes]

    def lay(self, item: LongItem) -> list[LaidRow]:
        return lay(item, self.kind, self.way.layout, self.specials, self.row)

    def collate(self, items: Sequence[LongItem], laid: Sequence[Sequence[LaidRow]], shape: Shape) -> LongBatch:
        return collate(items, laid, self.kind, self.way.compressed, self.specials.pad, shape)


def width(item: LongItem, kind: Kind, way: ReadingWay, row: int) -> int:
    """Tokens of the item's long row."""
    if way.layout == "whole":
        return 2 + item.length + sum(len(text) + 1 for text in texts_of(item, kind, way.layout))
    return item.length + 2 * max(1, -(-item.length // room_of(item, kind, way.layout, row)))


def fill(sizes: Sequence[Shape], shapes: Sequence[Shape]) -> Iterator[tuple[list[int], Shape]]:
    """Items of these rows and tokens -> the numbers of those in each pass, and its shape.

    A pass begins with the largest item left, as narrow as that one allows, and takes what fits beside it; then the
    smallest shape is chosen that holds them.
    """
    left = sorted(range(len(sizes)), key=lambda i: sizes[i][0] * sizes[i][1], reverse=True)
    while left:
        rows, tokens = sizes[left[0]]
        fitting = [shape for shape in shapes if shape[0] >= rows and shape[1] >= tokens]
        if not fitting:
            raise ModelError(f"an item of {rows} x {tokens} tokens fits in none of the shapes {tuple(shapes)}")
        wide = min(shape[1] for shape in fitting)
        room = max(shape[0] for shape in fitting if shape[1] == wide)
        some, used = [], 0
        for i in left:
            if used + sizes[i][0] <= room and sizes[i][1] <= wide:
                some.append(i)
                used += sizes[i][0]
        yield some, min(shape for shape in fitting if shape[1] == wide and shape[0] >= used)
        taken = set(some)
        left = [i for i in left if i not in taken]
