"""The one gate that files come in by: a path or standard input becomes bytes, and bytes become characters."""

import codecs
import io
import re
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from vcc.errors import DocumentError

STDIN = "standard input"
BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))
ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class File:
    """The bytes of one file, what messages call it, and its suffix (".pdf", in small letters; "" if it has none)."""

    data: bytes
    source: str
    suffix: str = ""


def open_file(path: str | Path) -> File:
    """All the bytes at a path, or of standard input for "-"."""
    if str(path) == "-":
        return File(sys.stdin.buffer.read(), STDIN)
    path = Path(path)
    try:
        return File(path.read_bytes(), str(path), path.suffix.lower())
    except FileNotFoundError as error:
        raise DocumentError(str(path), "no such file") from error
    except OSError as error:
        raise DocumentError(str(path), f"cannot be opened ({error.strerror})") from error


def zip_names(file: File) -> frozenset[str]:
    """The names of the files inside a ZIP archive; none where the file is no such archive."""
    if not file.data.startswith(ZIP):
        return frozenset()
    try:
        with zipfile.ZipFile(io.BytesIO(file.data)) as archive:
            return frozenset(archive.namelist())
    except zipfile.BadZipFile as error:
        raise DocumentError(file.source, f"is a broken DOCX, EPUB or ZIP file ({error})") from error


def decode(file: File, declared: str = "") -> str:
    """Bytes to text: a byte-order mark, UTF-8, the declared encoding, then Windows-1252 for Western text."""
    data = file.data
    for bom, name in BOMS:
        if data.startswith(bom):
            return _strict(file, name)
    if b"\0" in data or len(data) - len(data.translate(None, CONTROLS)) > len(data) // 100:
        raise DocumentError(file.source, "is a binary file, not text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        if declared and declared != "utf-8":
            return _strict(file, declared)
    # Windows-1252 gives almost every byte a letter, so it must not be believed when Western text is unlikely.
    if sum(byte > 127 for byte in data) > len(data) // 4:
        raise DocumentError(file.source, "is neither UTF-8 nor Western text (Windows-1252); save it as UTF-8")
    return _strict(file, "cp1252")


def declared_charset(data: bytes) -> str:
    """The encoding an HTML page or an XML file names near its top, or ""."""
    found = re.search(rb"""(?:charset|encoding)\s*=\s*["']?\s*([\w.:-]+)""", data[:2048])
    name = found.group(1).decode("ascii") if found else ""
    try:
        return codecs.lookup(name).name if b" ".decode(name) else ""
    except (LookupError, UnicodeError):  # unknown, or no encoding of text at all, such as "hex"
        return ""


def _strict(file: File, encoding: str) -> str:
    try:
        return file.data.decode(encoding)
    except UnicodeDecodeError as error:
        rule = f"is not valid {encoding} text at byte {error.start}; save it as UTF-8"
        raise DocumentError(file.source, rule) from error
