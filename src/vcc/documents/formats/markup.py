"""HTML, Markdown and EPUB.

The standard library's parser reads the HTML: a stream of text, blocks and headings is all we need, a tree is not, and
nothing more has to be installed. Markdown becomes HTML through markdown-it, which rich brings along.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from urllib.parse import unquote
from xml.etree import ElementTree

from vcc.documents.text import Pieces
from vcc.errors import DocumentError

BLOCK = re.compile(
    "address|article|aside|blockquote|body|caption|dd|details|div|dl|dt|fieldset|figcaption|figure|footer|form|h[1-6]"
    "|header|hr|html|legend|li|main|nav|ol|option|p|pre|section|summary|table|tbody|tfoot|thead|tr|ul"
)
HEADINGS = frozenset(("h1", "h2", "h3"))
LOCKED = "META-INF/encryption.xml"
UNREAD = frozenset(("script", "style", "template"))


class _Text(HTMLParser):
    """Collects a page's text: a blank line between blocks, a new piece at every heading."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[list[str]] = [["", ""]]
        self.title = ""
        self.inside: Counter[str] = Counter()
        self.line = ""
        self.heading = 0  # where in the piece the open heading began

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if BLOCK.fullmatch(tag):
            self._end_block()
        self.inside[tag] += 1
        if tag in HEADINGS:
            label, body = self.pieces[-1]
            # "CHAPTER I" right above "The Inn" is one heading, "CHAPTER I: The Inn".
            if "".join(body.split()) != "".join(label.replace(": ", "").split()):
                self.pieces.append(["", ""])
            self.heading = len(self.pieces[-1][1])
        elif tag == "br":
            self.line += "\n"
        elif tag in ("td", "th") and self.line.strip():
            self.line += " | "
        elif tag == "li":
            self.line += "- "

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)  # <div/> and <title/> of XHTML close themselves
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if BLOCK.fullmatch(tag):
            self._end_block()
        self.inside[tag] = max(self.inside[tag] - 1, 0)
        if tag in HEADINGS:
            label, body = self.pieces[-1]
            self.pieces[-1][0] = ": ".join(filter(None, (label, " ".join(body[self.heading :].split()))))

    def handle_data(self, data: str) -> None:
        if self.inside["title"] and not self.inside["svg"]:
            self.title += data
        elif not any(self.inside[tag] for tag in UNREAD):
            self.line += data if self.inside["pre"] else re.sub(r"\s+", " ", data)

    def _end_block(self) -> None:
        if not self.inside["pre"]:
            self.line = re.sub(r" *\n *", "\n", re.sub(r" {2,}", " ", self.line)).strip()
        if self.line.strip(" \n-"):
            self.pieces[-1][1] += self.line.strip("\n") + "\n\n"
        self.line = ""

    def close(self) -> None:
        super().close()
        self._end_block()


def read_html(text: str) -> Pieces:
    """Text as a browser lays it out; h1 to h3 start a new part. Scripts and styles are not read."""
    parser = _Text()
    parser.feed(text)
    parser.close()
    return Pieces(tuple((label, body) for label, body in parser.pieces), " ".join(parser.title.split()))


def read_markdown(text: str) -> Pieces:
    """Read as the page it describes, so that answers hold no asterisks; a front matter block is left out."""
    from markdown_it import MarkdownIt

    front = re.match(r"---[^\S\n]*\n(.*?\n)(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)", text, re.DOTALL)
    title = re.search(r"^title:[^\S\n]*[\"']?(.*?)[\"']?[^\S\n]*$", front.group(1), re.MULTILINE) if front else None
    read = read_html(MarkdownIt("commonmark").enable("table").render(text[front.end() :] if front else text))
    first = next((label for label, _ in read.pieces if label), "")
    return Pieces(read.pieces, title.group(1) if title else first)


def read_epub(data: bytes, source: str, decode: Callable[[bytes], str]) -> Pieces:
    """The files of the book's spine in order; their headings are the chapters."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as book:
            container = ElementTree.fromstring(book.read("META-INF/container.xml"))
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
                raise DocumentError(source, "is encrypted (protected EPUB); only books without protection can be read")
            found = [read_html(decode(book.read(page))) for page in pages]
    except DocumentError:
        raise
    except Exception as error:  # a damaged archive can fail anywhere inside zipfile or the XML parser
        raise DocumentError(source, f"is a broken EPUB ({type(error).__name__}: {error})") from error
    title = next((node.text or "" for node in tree.iter() if node.tag.endswith("}title")), "")
    pieces: list[tuple[str, str]] = []
    for number, page in enumerate(found, 1):
        named = [(label, body) for label, body in page.pieces if body.strip()]
        pieces += [(label or f"section {number}", body) for label, body in named]
    return Pieces(tuple(pieces), title)
