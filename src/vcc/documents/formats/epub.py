"""EPUB: a ZIP archive of web pages with a list of their order, the spine."""

import io
import posixpath
import zipfile
from urllib.parse import unquote
from xml.etree import ElementTree

from vcc.documents.formats.file import File, zip_names
from vcc.documents.formats.markup import read_html
from vcc.documents.text import Pieces
from vcc.errors import DocumentError

CONTAINER, LOCKED = "META-INF/container.xml", "META-INF/encryption.xml"


def is_epub(file: File) -> bool:
    return CONTAINER in zip_names(file)


def read_epub(file: File) -> Pieces:
    """The files of the book's spine in order; their headings are the chapters."""
    try:
        with zipfile.ZipFile(io.BytesIO(file.data)) as book:
            container = ElementTree.fromstring(book.read(CONTAINER))
            package = next(node.attrib["full-path"] for node in container.iter() if node.tag.endswith("}rootfile"))
            tree = ElementTree.fromstring(book.read(package))
            items = {node.attrib["id"]: node.attrib for node in tree.iter() if node.tag.endswith("}item")}
            spine = [items[node.attrib["idref"]] for node in tree.iter() if node.tag.endswith("}itemref")]
            pages = [
                posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(item["href"])))
                for item in spine
                if "nav" not in item.get("properties", "").split()
            ]
            # Obfuscated fonts are listed in the same file and do not matter here; encrypted pages do.
            locked = unquote(book.read(LOCKED).decode()) if LOCKED in book.namelist() else ""
            if any(page in locked for page in pages):
                rule = "is encrypted (protected EPUB); only books without protection can be read"
                raise DocumentError(file.source, rule)
            found = [read_html(File(book.read(page), file.source)) for page in pages]
    except DocumentError:
        raise
    except Exception as error:  # a damaged archive can fail anywhere inside zipfile or the XML parser
        raise DocumentError(file.source, f"is a broken EPUB ({type(error).__name__}: {error})") from error
    title = next((node.text or "" for node in tree.iter() if node.tag.endswith("}title")), "")
    pieces: list[tuple[str, str]] = []
    for number, page in enumerate(found, 1):
        named = [(label, body) for label, body in page.pieces if body.strip()]
        pieces += [(label or f"section {number}", body) for label, body in named]
    return Pieces(tuple(pieces), title)
