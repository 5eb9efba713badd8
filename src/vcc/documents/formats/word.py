"""DOCX, by python-docx for the package and its styles, and a walk of our own for the text."""

import io
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from vcc.documents.formats.file import File, zip_names
from vcc.documents.text import INSTALL, Pieces
from vcc.errors import DocumentError

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"  # a second copy for old programs
MARKS = {f"{WORD}tab": "\t", f"{WORD}br": "\n", f"{WORD}cr": "\n", f"{WORD}noBreakHyphen": "-"}
GONE = frozenset((f"{WORD}del", f"{WORD}moveFrom", f"{WORD}pPr", FALLBACK))


def is_docx(file: File) -> bool:
    return "word/document.xml" in zip_names(file)


def read_docx(file: File) -> Pieces:
    """Paragraphs, tables (a row a line), text boxes and notes; the styles Heading 1 to 3 start a new part.

    Tracked insertions and content controls are read too, which python-docx's own paragraph text leaves out;
    tracked deletions are not. Word's automatic numbers are no text in the file and so are missing here.
    """
    try:
        import docx
    except ImportError as error:
        raise DocumentError(file.source, f"reading DOCX needs python-docx: {INSTALL}") from error
    try:
        word = docx.Document(io.BytesIO(file.data))
        names = {style.style_id: style.name or "" for style in word.styles}
        pieces = [["", ""]]
        for style, body in _docx_blocks(word.element.body):
            if re.fullmatch(r"Heading [1-3]|Title", names.get(style, "")) and body.strip():
                pieces.append([body, ""])
            pieces[-1][1] += body + "\n\n"
        for part in word.part.package.iter_parts():
            if part.partname in ("/word/footnotes.xml", "/word/endnotes.xml"):
                notes = (body for _, body in _docx_blocks(ElementTree.fromstring(part.blob)))
                pieces.append([part.partname.removeprefix("/word/").removesuffix(".xml"), "\n\n".join(notes)])
        title = word.core_properties.title or ""
    except Exception as error:  # a damaged file can fail anywhere inside the library
        raise DocumentError(file.source, f"is a broken DOCX ({type(error).__name__}: {error})") from error
    return Pieces(tuple((label, body) for label, body in pieces), title)


def _docx_blocks(element: Any) -> Iterator[tuple[str, str]]:
    """(style id, text) of every paragraph, and of every table row as one line."""
    for child in element:
        if child.tag == f"{WORD}p":
            style = child.find(f"{WORD}pPr/{WORD}pStyle")
            yield "" if style is None else style.get(f"{WORD}val", ""), _docx_line(child)
            for box in child.iter(f"{WORD}txbxContent"):
                if not any(box in fallback.iter() for fallback in child.iter(FALLBACK)):
                    yield from _docx_blocks(box)
        elif child.tag == f"{WORD}tr":
            yield "", " | ".join(body for _, body in _docx_blocks(child) if body.strip())
        elif child.tag not in GONE:
            yield from _docx_blocks(child)


def _docx_line(paragraph: Any) -> str:
    """The text of one paragraph without that of the text boxes anchored in it."""
    line = ""
    for child in paragraph:
        if child.tag == f"{WORD}t":
            line += child.text or ""
        elif child.tag in MARKS:
            line += MARKS[child.tag]
        elif child.tag not in GONE and child.tag != f"{WORD}txbxContent":
            line += _docx_line(child)
    return line
