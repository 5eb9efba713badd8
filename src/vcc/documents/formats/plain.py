"""Plain text, split into pages at form feeds or into sections at headings."""

import re

from vcc.documents.formats.encoding import decode
from vcc.documents.formats.gate import File
from vcc.documents.formats.sections import headings
from vcc.documents.text import Pieces


def read_plain(file: File) -> Pieces:
    """Split at form feeds into pages; without them, at headings into sections."""
    text = decode(file)
    pages = text.strip("\f").split("\f")
    if len(pages) > 1:
        return Pieces(tuple((f"page {number}", page) for number, page in enumerate(pages, 1)))
    text = "\n".join(line.rstrip() for line in re.sub(r"\r\n?", "\n", text).split("\n"))
    heads = headings(text)
    edges = [0, *(head.start for head in heads), len(text)]
    labels = ["", *(head.label for head in heads)]
    return Pieces(tuple((label, text[a:b]) for label, a, b in zip(labels, edges, edges[1:], strict=False)))
