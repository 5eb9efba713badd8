"""EPUB: a ZIP archive of web pages, ordered by its spine."""

import posixpath
from collections.abc import Mapping
from urllib.parse import unquote

from vcc.documents.formats.gate import Archive, File, zip_names
from vcc.documents.formats.markup import read_html
from vcc.documents.formats.xml import xml_events
from vcc.documents.text import Pieces
from vcc.errors import DocumentError

CONTAINER, LOCKED = "META-INF/container.xml", "META-INF/encryption.xml"


def is_epub(file: File) -> bool:
    return CONTAINER in zip_names(file)


def read_epub(file: File) -> Pieces:
    """Read the files of the spine in order; their headings are the chapters."""
    try:
        book = Archive(file)
        package = attributes_of(book.read(CONTAINER), "rootfile")[0]["full-path"]
        listed = book.read(package)
        title = title_of(listed)
        pages = spine(listed, posixpath.dirname(package))
        # The same file also lists obfuscated fonts, which do not matter here.
        locked = attributes_of(book.read(LOCKED), "CipherReference") if LOCKED in book.names else []
        if {unquote(found.get("URI", "")) for found in locked} & set(pages):
            rule = "is an encrypted EPUB: only books without DRM can be read"
            raise DocumentError(file.source, rule)
        found = [read_html(book.read(page)) for page in pages]
    except DocumentError:
        raise
    except Exception as error:  # a damaged archive can fail anywhere in zipfile or the XML parser
        raise DocumentError(file.source, f"is a broken EPUB ({type(error).__name__}: {error})") from error
    pieces: list[tuple[str, str]] = []
    for number, page in enumerate(found, 1):
        named = [(label, body) for label, body in page.pieces if body.strip()]
        pieces += [(label or f"section {number}", body) for label, body in named]
    return Pieces(tuple(pieces), title)


def spine(package: File, folder: str) -> list[str]:
    """The distinct pages in reading order, without the table of contents."""
    items = {item["id"]: item for item in attributes_of(package, "item")}
    order = [items[reference["idref"]] for reference in attributes_of(package, "itemref")]
    pages = (item["href"] for item in order if "nav" not in item.get("properties", "").split())
    return list(dict.fromkeys(posixpath.normpath(posixpath.join(folder, unquote(page))) for page in pages))


def attributes_of(file: File, tag: str) -> list[Mapping[str, str]]:
    """The attributes of all elements with a name."""
    return [event.attributes for event in xml_events(file) if event.kind == "start" and event.tag == tag]


def title_of(package: File) -> str:
    """The text of the first element named title."""
    words, inside = "", False
    for event in xml_events(package):
        if event.kind == "text":
            words += event.name if inside else ""
        elif event.tag == "title":
            if event.kind == "end":
                return words
            inside = True
    return words
