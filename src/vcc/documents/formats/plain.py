"""Plain text: pages by form feeds, or sections by their headings."""

import re

from vcc.documents.formats.encoding import decode
from vcc.documents.formats.gate import File
from vcc.documents.text import Pieces

# A line of its own counts as a heading when it is "Chapter 4 ...", or a numbered title such as "12. GOVERNING LAW";
# books as plain text often have Markdown's signs before it.
HEADING = re.compile(
    r"(?:\A|(?<=\n\n))[^\S\n]*(?:#{1,6}[^\S\n]+)?("
    r"(?i:chapter|part|book|volume|letter|stave|act|scene|section|article|exhibit|schedule|appendix|annex)"
    r"[^\S\n]+(?:\d+|[IVXLCDM]+|[A-Z]|(?i:the[^\S\n]+)?(?i:one|two|three|four|five|six|seven|eight|nine|ten|first|second"
    r"|third|last))\b[^\n]{0,90}"
    r"|(?:\d{1,2}|[IVXLC]{1,6})\.(?:\d{1,2}\.?)*[^\S\n]+(?:[A-Z][^\n]{0,78}[^\s.,;:]|[A-Z][A-Z ,&'()/-]{2,78}\.)"
    r")[^\S\n]*(?=\n\n|\Z)"
)


def read_plain(file: File) -> Pieces:
    """Form feeds separate pages; without them, headings on a line of their own separate sections."""
    text = decode(file)
    pages = text.strip("\f").split("\f")
    if len(pages) > 1:
        return Pieces(tuple((f"page {number}", page) for number, page in enumerate(pages, 1)))
    text = re.sub(r"\r\n?", "\n", text)
    text = re.sub(r"\n(?:[^\S\n]*\n)+", "\n\n", text)
    heads = list(HEADING.finditer(text))
    edges = [0, *(head.start() for head in heads), len(text)]
    labels = ["", *(head.group(1) for head in heads)]
    return Pieces(tuple((label, text[a:b]) for label, a, b in zip(labels, edges, edges[1:], strict=False)))
