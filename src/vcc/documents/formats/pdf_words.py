"""The words of a PDF page with their boxes, by PDFium. Both come from one pass, so they agree."""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

Edges = tuple[float, float, float, float]  # x0, y0, x1, y1: 0 to 1 of the displayed page, from its top left

GRID = 1 << 20  # PDFium maps points to integers: rounding is negligible on this grid
LINE_END_HYPHENS = ("\x02", "\ufffe")  # PDFium's codes for a hyphen at the end of a line
TALLEST = 3.0  # a font's height is ignored if it is this many times that of its letters
TALLER = 1.4  # a word this many times as tall as its line is cut to the line's height


@dataclass(frozen=True)
class PageWord:
    """Characters between blanks and their box."""

    text: str
    box: Edges


Line = list[PageWord]


def page_lines(page: Any) -> list[Line]:
    """The lines of a page, in the file's order."""
    textpage = page.get_textpage()
    try:
        return [even(line) for line in _lines(page, textpage)]
    finally:
        textpage.close()


def paragraph_breaks(lines: list[Line]) -> list[bool]:
    """For each line but the last: whether the gap to the next is larger than usual."""
    gaps = [
        after[0].box[1] - max(word.box[3] for word in before) for before, after in zip(lines, lines[1:], strict=False)
    ]
    heights = [word.box[3] - word.box[1] for line in lines for word in line]
    usual = median(gap for gap in gaps if gap > -0.01) if any(gap > -0.01 for gap in gaps) else 0.0
    return [gap > usual + 0.4 * median(heights) for gap in gaps]


def _lines(page: Any, textpage: Any) -> Iterator[Line]:
    line: Line = []
    letters: list[str] = []
    boxes: list[Edges] = []

    def end_word() -> None:
        if letters and boxes:
            line.append(PageWord("".join(letters), _around(boxes)))
        letters.clear()
        boxes.clear()

    for letter, box in _letters(page, textpage):
        if box is not None and boxes and _another_line(_around(boxes), box):
            # PDFium joins the last word of a line with the next line if nothing marks its end.
            end_word()
            yield line
            line = []
        if letter in LINE_END_HYPHENS:
            letters.append("-")
            boxes += [box] if box else []
        elif not letter.isspace() and letter != "\0":
            letters.append(letter)
            boxes += [box] if box else []
            continue
        else:
            end_word()
        if letter in ("\n", *LINE_END_HYPHENS):
            end_word()
            if line:
                yield line
            line = []
    end_word()
    if line:
        yield line


def even(line: Line) -> Line:
    """The line with words of similar height. Mathematical fonts reserve room for their largest sign, and a drop cap
    reaches into the next line.
    """
    usual = [word.box for word in line if any(map(str.isalnum, word.text))]  # dots and dashes are lower
    if len(usual) < 3:
        return line
    top, bottom = (median(box[edge] for box in usual) for edge in (1, 3))
    beside = [min(word.box[3], bottom) - max(word.box[1], top) > 0.5 * (bottom - top) for word in line]
    if sum(beside) < 0.5 * len(usual):  # vertical or slanted text
        return line

    def cut(word: PageWord) -> PageWord:
        x0, y0, x1, y1 = word.box
        if y1 - y0 <= TALLER * (bottom - top):
            return word
        return PageWord(word.text, (x0, max(y0, top), x1, min(y1, bottom)))

    return [cut(word) if level else word for word, level in zip(line, beside, strict=True)]


def _another_line(word: Edges, letter: Edges) -> bool:
    """Whether a letter is below or above a word, not beside it."""
    height = min(word[3] - word[1], letter[3] - letter[1])
    overlap = min(word[3], letter[3]) - max(word[1], letter[1])
    return overlap < -0.5 * height


def _letters(page: Any, textpage: Any) -> Iterator[tuple[str, Edges | None]]:
    """Every character with its box; blanks and line ends added by PDFium have none."""
    import pypdfium2.raw as pdfium

    place = _placing(page)
    for number in range(pdfium.FPDFText_CountChars(textpage)):
        letter = chr(pdfium.FPDFText_GetUnicode(textpage, number))
        drawn = not letter.isspace() and pdfium.FPDFText_IsGenerated(textpage, number) != 1
        yield letter, place(_letter_box(textpage, number)) if drawn else None


def _letter_box(textpage: Any, number: int) -> Edges:
    """A box as wide as the letter and as tall as its line, in page units."""
    import pypdfium2.raw as pdfium

    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    pdfium.FPDFText_GetCharBox(textpage, number, left, right, bottom, top)
    loose = pdfium.FS_RECTF()
    found = pdfium.FPDFText_GetLooseCharBox(textpage, number, loose)
    tight = (left.value, bottom.value, right.value, top.value)
    if not found or loose.right <= loose.left or loose.top <= loose.bottom:
        return tight
    whole = (loose.left, loose.bottom, loose.right, loose.top)
    drawn = top.value - bottom.value > 0
    size = pdfium.FPDFText_GetFontSize(textpage, number)
    believed = not drawn or (loose.top - loose.bottom) <= TALLEST * max(top.value - bottom.value, size)
    return whole if believed else tight


def _placing(page: Any) -> Any:
    """The map from page units to 0..1 of the displayed page, with its rotation and crop."""
    import pypdfium2.raw as pdfium

    across, down = ctypes.c_int(), ctypes.c_int()

    def corner(x: float, y: float) -> tuple[float, float]:
        pdfium.FPDF_PageToDevice(page, 0, 0, GRID, GRID, 0, x, y, across, down)
        return across.value / GRID, down.value / GRID

    # The map is linear: three corners define it, without a call per letter.
    (ox, oy), (ax, ay), (bx, by) = corner(0, 0), corner(1000, 0), corner(0, 1000)
    xx, xy, yx, yy = (ax - ox) / 1000, (ay - oy) / 1000, (bx - ox) / 1000, (by - oy) / 1000

    def place(box: Edges) -> Edges:
        xs = [ox + x * xx + y * yx for x, y in ((box[0], box[1]), (box[2], box[3]))]
        ys = [oy + x * xy + y * yy for x, y in ((box[0], box[1]), (box[2], box[3]))]
        return _clip(min(xs)), _clip(min(ys)), _clip(max(xs)), _clip(max(ys))

    return place


def _clip(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _around(boxes: list[Edges]) -> Edges:
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)
