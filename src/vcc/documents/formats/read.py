"""Read a path, standard input or a folder into a `Text`, or raise a `DocumentError`.

A format is a row of `FORMATS`. The content decides (a PDF named .txt is still a PDF); the name only distinguishes
Markdown and HTML from plain text.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vcc.documents.formats.epub import is_epub, read_epub
from vcc.documents.formats.gate import DEFAULT_LIMITS, ZIP, File, Limits, file_of, files_below, open_file
from vcc.documents.formats.markup import HTML, MARKDOWN, is_html, is_markdown, read_html, read_markdown
from vcc.documents.formats.pdf import is_pdf, read_pdf
from vcc.documents.formats.plain import read_plain
from vcc.documents.formats.word import is_docx, read_docx
from vcc.documents.text import BEGINNING, BELOW, Pieces, Text, join_read, shown_label
from vcc.errors import DocumentError
from vcc.printable import printable


@dataclass(frozen=True)
class Format:
    """A file format: its suffixes in a folder, how it is recognised, and how it is read.

    `binary` names a binary format ("a PDF"), which a file with its suffix must have; it is "" for text formats.
    """

    suffixes: tuple[str, ...]
    knows: Callable[[File], bool]
    read: Callable[[File], Pieces]
    binary: str = ""


FORMATS = (  # the first match reads the file
    Format((".pdf",), is_pdf, read_pdf, "a PDF"),
    Format((".docx",), is_docx, read_docx, "a DOCX"),
    Format((".epub",), is_epub, read_epub, "an EPUB"),
    Format(MARKDOWN, is_markdown, read_markdown),
    Format(HTML, is_html, read_html),
    Format((".txt", ".text"), lambda file: True, read_plain),
)
FOREIGN = {
    ZIP: "is a ZIP file but no DOCX and no EPUB: unpack it first",
    b"\xd0\xcf\x11\xe0": "is an old or password-protected Office file: save it as .docx without a password",
    b"{\\rtf": "is RTF: save it as .docx or .txt",
    b"\x1f\x8b": "is compressed: unpack it first",
}


def read_text(path: str | Path, limits: Limits = DEFAULT_LIMITS, read: Callable[[File], Text] | None = None) -> Text:
    """Read a file, "-" for standard input, or a folder.

    A folder becomes one text: its readable files, sorted by path, with the file's name in each part's label. Other and
    broken files are listed in `notes`. `read` turns the bytes of a file into text; by default `text_of`, in this
    process.
    """
    read = read or text_of
    if str(path) != "-" and os.path.isdir(path):
        return _text(read_folder(Path(path), limits, read), str(path), Path(path).resolve().name, limits)
    return read(open_file(path, limits))


def read_data(data: bytes, name: str, limits: Limits = DEFAULT_LIMITS) -> Text:
    """The same for bytes from elsewhere, such as an upload; `name` gives the suffix and the title."""
    return text_of(file_of(data, name, limits))


def text_of(file: File) -> Text:
    return _text(read_file(file), file.source, Path(file.source).stem, file.limits)


def read_file(file: File) -> Pieces:
    if not file.data.strip():
        raise DocumentError(file.source, "is empty")
    return format_of(file).read(file)


def format_of(file: File) -> Format:
    """The format of a file: binary ones by content; anything else must be text and not misnamed."""
    for format in FORMATS:
        if format.binary and format.knows(file):
            return format
    for first_bytes, rule in FOREIGN.items():
        if file.data.startswith(first_bytes):
            raise DocumentError(file.source, rule)
    for format in FORMATS:
        if format.binary and file.suffix in format.suffixes:
            raise DocumentError(file.source, f"is not {format.binary}, though its name says so")
    return next(format for format in FORMATS if not format.binary and format.knows(file))


def suffixes() -> tuple[str, ...]:
    """All suffixes of documents."""
    return tuple(sorted(suffix for format in FORMATS for suffix in format.suffixes))


def documents_in(folder: Path, limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[Path, str]]:
    """Every file below a folder except hidden ones, with the reason to skip it, or ""."""
    known = suffixes()
    for path, problem in files_below(folder, limits):
        yield path, problem or ("" if path.suffix.lower() in known else "not a document format")


def read_folder(folder: Path, limits: Limits, read: Callable[[File], Text]) -> Pieces:
    """All readable files below a folder, except hidden ones and links that leave it."""
    pieces: list[tuple[str, str]] = []
    notes: list[str] = []
    characters = 0
    for path, problem in documents_in(folder, limits):
        name = path.relative_to(folder)
        if not problem:
            try:
                text = read(open_file(path, limits))
            except DocumentError as error:
                problem = error.rule
        if problem:
            notes.append(f"skipped {name}: {problem}")
            continue
        characters += len(text.text)
        limits.check_characters(str(folder), characters)
        for part in text.parts:
            inside = "" if part is text.parts[0] and part.label == BEGINNING else part.label
            pieces.append((f"{name}{BELOW}{inside}" if inside else str(name), text.text[part.start : part.end]))
        notes += [f"{name}: {note}" for note in text.notes]
    if not pieces:
        found = "; ".join(notes[:3]) or "it is empty"
        raise DocumentError(str(folder), f"no document of a known kind ({', '.join(suffixes())}) here: {found}")
    return Pieces(tuple(pieces), "", tuple(notes))


def _text(read: Pieces, source: str, title: str, limits: Limits) -> Text:
    limits.check_characters(source, sum(len(body) for _, body in read.pieces))
    text, parts, words = join_read(read)
    if not text:
        raise DocumentError(source, "holds no text")
    named = shown_label(read.title) or shown_label(title)
    notes = tuple(map(printable, read.notes))
    return Text(text, named, printable(source), parts, notes, words)
