"""Boxes of words on pages, as fractions of the displayed page from its top left corner."""

from collections.abc import Iterable
from typing import NamedTuple


class Word(NamedTuple):
    """The characters start..end - 1 of a text and their box on a page (counted from 1)."""

    start: int
    end: int
    page: int
    x0: float
    y0: float
    x1: float
    y1: float


class Box(NamedTuple):
    """A rectangle on a page."""

    page: int
    x0: float
    y0: float
    x1: float
    y1: float


def line_boxes(words: Iterable[Word]) -> tuple[Box, ...]:
    """One box per line of these words, which are in reading order."""
    boxes: list[Box] = []
    for word in words:
        box = Box(*word[2:])
        if boxes and _beside(boxes[-1], box):
            last = boxes[-1]
            edges = (min(last.x0, box.x0), min(last.y0, box.y0), max(last.x1, box.x1), max(last.y1, box.y1))
            boxes[-1] = Box(box.page, *edges)
        else:
            boxes.append(box)
    return tuple(boxes)


def _beside(line: Box, box: Box) -> bool:
    """Whether a word continues the line: level with it, to its right, and in the same column."""
    height = min(line.y1 - line.y0, box.y1 - box.y0)
    overlap = min(line.y1, box.y1) - max(line.y0, box.y0)
    gap = box.x0 - line.x1
    return line.page == box.page and overlap > 0.5 * height and -0.01 < gap < 0.05
