"""HTML and Markdown.

The standard library's parser reads the HTML: a stream of text, blocks and headings is all we need, a tree is not, and
nothing more has to be installed. Markdown becomes HTML through markdown-it, which rich brings along.
"""

import re
from collections import Counter
from html.parser import HTMLParser

from vcc.documents.formats.encoding import declared_charset, decode
from vcc.documents.formats.gate import File
from vcc.documents.text import Pieces

MARKDOWN = (".md", ".markdown")
HTML = (".html", ".htm", ".xhtml")
LOOKS_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<(?:!doctype\s+)?html\b", re.IGNORECASE)

BLOCK = re.compile(
    "address|article|aside|blockquote|body|caption|dd|details|div|dl|dt|fieldset|figcaption|figure|footer|form|h[1-6]"
    "|header|hr|html|legend|li|main|nav|ol|option|p|pre|section|summary|table|tbody|tfoot|thead|tr|ul"
)
HEADINGS = frozenset(("h1", "h2", "h3"))
UNREAD = frozenset(("script", "style", "template"))


class _Page(HTMLParser):
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


def is_markdown(file: File) -> bool:
    return file.suffix in MARKDOWN


def is_html(file: File) -> bool:
    return file.suffix in HTML or LOOKS_HTML.match(file.data) is not None


def read_html(file: File) -> Pieces:
    """Text as a browser lays it out; h1 to h3 start a new part. Scripts and styles are not read."""
    return html_pieces(decode(file, declared_charset(file.data)))


def read_markdown(file: File) -> Pieces:
    """Read as the page it describes, so that answers hold no asterisks; a front matter block is left out."""
    from markdown_it import MarkdownIt

    text = decode(file)
    front = re.match(r"---[^\S\n]*\n(.*?\n)(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)", text, re.DOTALL)
    title = re.search(r"^title:[^\S\n]*[\"']?(.*?)[\"']?[^\S\n]*$", front.group(1), re.MULTILINE) if front else None
    read = html_pieces(MarkdownIt("commonmark").enable("table").render(text[front.end() :] if front else text))
    first = next((label for label, _ in read.pieces if label), "")
    return Pieces(read.pieces, title.group(1) if title else first)


def html_pieces(text: str) -> Pieces:
    parser = _Page()
    parser.feed(text)
    parser.close()
    return Pieces(tuple((label, body) for label, body in parser.pieces), " ".join(parser.title.split()))
