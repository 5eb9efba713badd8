"""Where words stand on the pages of a document: 0 to 1 of the page as it is shown, from its top left corner."""

from collections.abc import Iterable
from typing import NamedTuple


class Word(NamedTuple):
    """The characters start..end - 1 of a text, and their box on a page (1, 2, ...)."""

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
    """One box for each line that the words, in reading order, stand on."""
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
    """Whether a word goes on the line before it: level with it, to its right, and no column away."""
    height = min(line.y1 - line.y0, box.y1 - box.y0)
    overlap = min(line.y1, box.y1) - max(line.y0, box.y0)
    gap = box.x0 - line.x1
    return line.page == box.page and overlap > 0.5 * height and -0.01 < gap < 0.05
