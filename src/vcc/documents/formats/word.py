"""DOCX: a ZIP archive of XML, read in one pass per part; only text is kept."""

import re
from collections.abc import Iterator

from vcc.documents.formats.gate import Archive, File, zip_names
from vcc.documents.formats.xml import xml_events
from vcc.documents.text import Pieces
from vcc.errors import DocumentError

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FALLBACK = "http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"  # a copy for old programs
TITLE = "http://purl.org/dc/elements/1.1/}title"
BODY, STYLES, PROPERTIES = "word/document.xml", "word/styles.xml", "docProps/core.xml"
NOTES = ("footnotes", "endnotes")
MARKS = {f"{WORD}tab": "\t", f"{WORD}br": "\n", f"{WORD}cr": "\n", f"{WORD}noBreakHyphen": "-"}
GONE = frozenset((f"{WORD}del", f"{WORD}moveFrom", f"{WORD}tabs", f"{WORD}pPrChange", FALLBACK))
PARAGRAPH, ROW, BOX, WORDS = (f"{WORD}{name}" for name in ("p", "tr", "txbxContent", "t"))


def is_docx(file: File) -> bool:
    return BODY in zip_names(file)


def read_docx(file: File) -> Pieces:
    """Paragraphs, tables (one line per row), text boxes and notes; the styles Heading 1 to 3 start a new part.

    Tracked insertions and content controls are included, tracked deletions are not. Automatic numbers are missing:
    the file does not contain them as text.
    """
    try:
        word = Archive(file)
        names = style_names(word.read(STYLES)) if STYLES in word.names else {}
        pieces: list[tuple[str, list[str]]] = [("", [])]
        for style, body in blocks(word.read(BODY)):
            if re.fullmatch(r"Heading [1-3]|Title", names.get(style, ""), re.IGNORECASE) and body.strip():
                pieces.append((body, []))
            pieces[-1][1].append(body)
        for name in NOTES:
            if f"word/{name}.xml" in word.names:
                pieces.append((name, [body for _, body in blocks(word.read(f"word/{name}.xml"))]))
        title = title_of(word.read(PROPERTIES)) if PROPERTIES in word.names else ""
    except DocumentError:
        raise
    except Exception as error:  # a damaged archive can fail anywhere in zipfile or the XML parser
        raise DocumentError(file.source, f"is a broken DOCX ({type(error).__name__}: {error})") from error
    return Pieces(tuple((label, "\n\n".join(body)) for label, body in pieces), title)


def blocks(file: File) -> Iterator[tuple[str, str]]:
    """(style id, text) of every paragraph, and of every table row as one line.

    The paragraphs of a text box follow the paragraph that anchors it. A nested row belongs to the line of the outer
    one.
    """
    found: list[tuple[str, list[str]]] = []  # paragraphs in the order of their starts
    line: list[str] | None = None  # of the current paragraph; None: between paragraphs
    around: list[list[str] | None] = []  # lines interrupted by text boxes and paragraphs
    rows = gone = 0
    reads_words = False
    row_start = 0
    for event in xml_events(file):
        name = event.name
        if event.kind == "text":
            if reads_words and line is not None and not gone:
                line.append(name)
        elif event.kind == "start":
            gone += name in GONE
            if gone:
                continue
            if name == PARAGRAPH:
                around.append(line)
                line = []
                found.append(("", line))
            elif name == BOX:
                around.append(line)
                line = None
            elif name == f"{WORD}pStyle" and line is not None:
                found[-1] = (event.attributes.get(f"{WORD}val", ""), found[-1][1])
            elif name == ROW:
                row_start = row_start if rows else len(found)
                rows += 1
            elif name in MARKS and line is not None:
                line.append(MARKS[name])
            reads_words = name == WORDS
        else:
            if gone:
                gone -= name in GONE
                continue
            reads_words = False
            if name in (PARAGRAPH, BOX):
                line = around.pop()
            elif name == ROW:
                rows -= 1
                if not rows:
                    cells = [cell for _, words in found[row_start:] if (cell := "".join(words)).strip()]
                    found[row_start:] = [("", [" | ".join(cells)])]
    for style, words in found:
        yield style, "".join(words)


def style_names(styles: File) -> dict[str, str]:
    """The display name of each style by its id: "Heading 1" by "Heading1"."""
    names: dict[str, str] = {}
    style = ""
    for event in xml_events(styles):
        if event.kind == "start" and event.name == f"{WORD}style":
            style = event.attributes.get(f"{WORD}styleId", "")
        elif event.kind == "start" and event.name == f"{WORD}name" and style:
            names.setdefault(style, event.attributes.get(f"{WORD}val", ""))
    return names


def title_of(properties: File) -> str:
    words, inside = "", False
    for event in xml_events(properties):
        if event.kind == "text":
            words += event.name if inside else ""
        elif event.name == TITLE:
            inside = event.kind == "start"
    return words
