"""From a path, standard input or a folder to a `Document`; whatever cannot be read is a `DocumentError`.

The content decides the format (a PDF named .txt is still a PDF), the name only tells Markdown and HTML from plain text.
"""

from __future__ import annotations

import codecs
import io
import re
import sys
import zipfile
from pathlib import Path

from vcc.documents.formats.markup import read_epub, read_html, read_markdown
from vcc.documents.formats.pdf import read_pdf
from vcc.documents.formats.plain import read_plain
from vcc.documents.formats.word import read_docx
from vcc.documents.text import Document, Pieces, join_pieces
from vcc.errors import DocumentError

STDIN = "standard input"
MARKDOWN = frozenset((".md", ".markdown"))
HTML = frozenset((".html", ".htm", ".xhtml"))
PACKED = {".pdf": "a PDF", ".docx": "a DOCX", ".epub": "an EPUB"}
SUFFIXES = frozenset((".txt", ".text", *MARKDOWN, *HTML, *PACKED))

BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
FOREIGN = {
    b"\xd0\xcf\x11\xe0": "is an old or password-protected Office file; save it as .docx without a password",
    b"{\\rtf": "is RTF; save it as .docx or .txt",
    b"\x1f\x8b": "is compressed; unpack it first",
}
LOOKS_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<(?:!doctype\s+)?html\b", re.IGNORECASE)
CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))


def read_document(path: str | Path) -> Document:
    """Read a file, "-" for standard input, or a folder.

    A folder becomes one document, because one question is asked of all of it: its readable files in the order of
    their paths, each part labelled with its file. Files of other kinds, and broken ones, are named in `notes`.
    """
    if str(path) == "-":
        return _document(_read_pieces(sys.stdin.buffer.read(), STDIN, ""), STDIN, STDIN)
    path = Path(path)
    if path.is_dir():
        return _document(_read_folder(path), str(path), path.resolve().name)
    return _document(_read_file(path), str(path), path.stem)


def _document(read: Pieces, source: str, title: str) -> Document:
    text, parts = join_pieces(read.pieces)
    if not text:
        raise DocumentError(source, "holds no text")
    return Document(text, " ".join(read.title.split()) or title, source, parts, read.notes)


def _read_file(path: Path) -> Pieces:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DocumentError(str(path), "no such file") from error
    except OSError as error:
        raise DocumentError(str(path), f"cannot be opened ({error.strerror})") from error
    return _read_pieces(data, str(path), path.suffix.lower())


def _read_folder(folder: Path) -> Pieces:
    pieces: list[tuple[str, str]] = []
    notes: list[str] = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_dir() or any(step.startswith(".") for step in name.parts):
            continue
        if path.suffix.lower() not in SUFFIXES:
            notes.append(f"skipped {name}: not a document format")
            continue
        try:
            read = _read_file(path)
        except DocumentError as error:
            notes.append(f"skipped {name}: {error.rule}")
        else:
            pieces += [(f"{name} · {label}" if label else str(name), body) for label, body in read.pieces]
            notes += [f"{name}: {note}" for note in read.notes]
    if not pieces:
        found = "; ".join(notes[:3]) or "it is empty"
        raise DocumentError(str(folder), f"no document of a known kind ({', '.join(sorted(SUFFIXES))}) here: {found}")
    return Pieces(tuple(pieces), "", tuple(notes))


def _read_pieces(data: bytes, source: str, suffix: str) -> Pieces:
    """Pick the reader by what the file holds."""
    if not data.strip():
        raise DocumentError(source, "is empty")
    if b"%PDF-" in data[:1024]:
        return read_pdf(data, source)
    if data.startswith(b"PK\x03\x04"):
        return _read_zip(data, source)
    for magic, rule in FOREIGN.items():
        if data.startswith(magic):
            raise DocumentError(source, rule)
    if suffix in PACKED:
        raise DocumentError(source, f"is not {PACKED[suffix]}, though its name says so")
    if suffix in HTML or (LOOKS_HTML.match(data) and suffix not in MARKDOWN):
        return read_html(decode(data, source, declared_charset(data)))
    text = decode(data, source)
    return read_markdown(text) if suffix in MARKDOWN else read_plain(text)


def _read_zip(data: bytes, source: str) -> Pieces:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = set(archive.namelist())
    except zipfile.BadZipFile as error:
        raise DocumentError(source, f"is a broken DOCX, EPUB or ZIP file ({error})") from error
    if "word/document.xml" in names:
        return read_docx(data, source)
    if "META-INF/container.xml" in names:
        return read_epub(data, source, lambda page: decode(page, source, declared_charset(page)))
    raise DocumentError(source, "is a ZIP file but no DOCX and no EPUB; unpack it first")


def declared_charset(data: bytes) -> str:
    """The encoding an HTML page or an XML file names near its top, or ""."""
    found = re.search(rb"""(?:charset|encoding)\s*=\s*["']?\s*([\w.:-]+)""", data[:2048])
    name = found.group(1).decode("ascii") if found else ""
    try:
        return codecs.lookup(name).name if b" ".decode(name) else ""
    except (LookupError, UnicodeError):  # unknown, or no encoding of text at all, such as "hex"
        return ""


def decode(data: bytes, source: str, declared: str = "") -> str:
    """Bytes to text: a byte-order mark, UTF-8, the declared encoding, then Windows-1252 for Western text."""
    for bom, name in BOMS:
        if data.startswith(bom):
            return _strict(data, name, source)
    if b"\0" in data or len(data) - len(data.translate(None, CONTROLS)) > len(data) // 100:
        raise DocumentError(source, "is a binary file, not text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        if declared and declared != "utf-8":
            return _strict(data, declared, source)
    # Windows-1252 gives almost every byte a letter, so it must not be believed when Western text is unlikely.
    if sum(byte > 127 for byte in data) > len(data) // 4:
        raise DocumentError(source, "is neither UTF-8 nor Western text (Windows-1252); save it as UTF-8")
    return _strict(data, "cp1252", source)


def _strict(data: bytes, encoding: str, source: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise DocumentError(source, f"is not valid {encoding} text at byte {error.start}; save it as UTF-8") from error
