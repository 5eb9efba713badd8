"""Decode bytes to text."""

import codecs
import re

from vcc.documents.formats.gate import File
from vcc.errors import DocumentError

BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))


def decode(file: File, declared: str = "") -> str:
    """Decode by byte-order mark, else as UTF-8, in the declared encoding, or as Windows-1252 for Western text."""
    data = file.data
    file.limits.check_characters(file.source, len(data) // 4)  # no encoding needs more bytes per character
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
    # Windows-1252 decodes almost any bytes, so accept it only if the result looks like Western text.
    if sum(byte > 127 for byte in data) > len(data) // 4:
        raise DocumentError(file.source, "is neither UTF-8 nor Western text (Windows-1252); save it as UTF-8")
    return _strict(file, "cp1252")


def declared_charset(data: bytes) -> str:
    """The encoding declared near the top of an HTML or XML file, or ""."""
    found = re.search(rb"""(?:charset|encoding)\s*=\s*["']?\s*([\w.:-]+)""", data[:2048])
    name = found.group(1).decode("ascii") if found else ""
    try:
        return codecs.lookup(name).name if b" ".decode(name) else ""
    except (LookupError, UnicodeError):  # unknown, or not a text encoding, such as "hex"
        return ""


def _strict(file: File, encoding: str) -> str:
    try:
        return file.data.decode(encoding)
    except UnicodeDecodeError as error:
        rule = f"is not valid {encoding} text at byte {error.start}; save it as UTF-8"
        raise DocumentError(file.source, rule) from error
