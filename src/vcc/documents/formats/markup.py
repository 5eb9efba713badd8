"""HTML and Markdown.

A page is read as a stream of text, blocks and headings; no tree is needed. Markdown is converted to HTML with
markdown-it, a dependency of rich.
"""

import re
from collections import Counter

from vcc.documents.formats.encoding import declared_charset, decode
from vcc.documents.formats.gate import File
from vcc.documents.formats.tags import html_tokens
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


class _Page:
    """Collects the text of a page: a blank line between blocks, a new piece at each heading."""

    def __init__(self) -> None:
        self.pieces: list[tuple[list[str], list[str]]] = [([], [])]  # headings, blocks
        self.title: list[str] = []
        self.inside: Counter[str] = Counter()
        self.line: list[str] = []
        self.blank = True  # the line has only blanks
        self.headed = True  # the piece has only headings
        self.heading: int | None = None  # where in the piece the open heading began

    def start(self, tag: str) -> None:
        if BLOCK.fullmatch(tag):
            self.end_block()
        self.inside[tag] += 1
        if tag in HEADINGS:
            # "CHAPTER I" right above "The Inn" is one heading, "CHAPTER I: The Inn".
            if not self.headed or self.heading is not None:
                self.pieces.append(([], []))
                self.headed = True
            self.heading = len(self.pieces[-1][1])
        elif tag == "br":
            self.line.append("\n")
        elif tag in ("td", "th") and not self.blank:
            self.line.append(" | ")
        elif tag == "li":
            self.add("- ")

    def end(self, tag: str) -> None:
        if BLOCK.fullmatch(tag):
            self.end_block()
        self.inside[tag] = max(self.inside[tag] - 1, 0)
        if tag in HEADINGS and self.heading is not None:
            heads, blocks = self.pieces[-1]
            heads.append(" ".join(" ".join(blocks[self.heading :]).split()))
            self.heading = None

    def text(self, text: str) -> None:
        if self.inside["title"] and not self.inside["svg"]:
            self.title.append(text)
        elif not any(self.inside[tag] for tag in UNREAD):
            self.add(text if self.inside["pre"] else re.sub(r"\s+", " ", text))

    def add(self, words: str) -> None:
        self.line.append(words)
        self.blank = self.blank and not words.strip()

    def end_block(self) -> None:
        line = "".join(self.line)
        if not self.inside["pre"]:
            line = re.sub(r" *\n *", "\n", re.sub(r" {2,}", " ", line)).strip()
        if line.strip(" \n-"):
            self.pieces[-1][1].append(line.strip("\n"))
            self.headed = self.headed and self.heading is not None
        self.line, self.blank = [], True


def is_markdown(file: File) -> bool:
    return file.suffix in MARKDOWN


def is_html(file: File) -> bool:
    return file.suffix in HTML or LOOKS_HTML.match(file.data) is not None


def read_html(file: File) -> Pieces:
    """Text as a browser shows it; h1 to h3 start a new part. Scripts and styles are skipped."""
    return html_pieces(decode(file, declared_charset(file.data)))


def read_markdown(file: File) -> Pieces:
    """Read as the rendered page, without markup in the answers; front matter is skipped."""
    from markdown_it import MarkdownIt

    text = decode(file)
    front = re.match(r"---[^\S\n]*\n(.*?\n)(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)", text, re.DOTALL)
    fields = front.group(1).split("\n") if front else []
    titles = [line.removeprefix("title:").strip().strip("\"'") for line in fields if line.startswith("title:")]
    read = html_pieces(MarkdownIt("commonmark").enable("table").render(text[front.end() :] if front else text))
    first = next((label for label, _ in read.pieces if label), "")
    return Pieces(read.pieces, titles[0] if titles else first)


def html_pieces(text: str) -> Pieces:
    page = _Page()
    for kind, content in html_tokens(text):
        if kind == "text":
            page.text(content)
        if kind in ("start", "empty"):
            page.start(content)
        if kind in ("end", "empty"):  # <div/> and <title/> of XHTML close themselves
            page.end(content)
    page.end_block()
    pieces = ((": ".join(filter(None, heads)), "\n\n".join(blocks)) for heads, blocks in page.pieces)
    return Pieces(tuple(pieces), " ".join("".join(page.title).split()))
