"""PDF, with PDFium: one piece per page, words with boxes; words hyphenated at line ends are joined."""

import re
from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any

from vcc.documents.boxes import Word
from vcc.documents.formats.gate import File
from vcc.documents.formats.pdf_words import Line, PageWord, page_lines, paragraph_breaks
from vcc.documents.text import INSTALL, Pieces, normalise
from vcc.errors import DocumentError

# A line that ends in "non-" is far more often a compound than a hyphenated word.
COMPOUND = re.compile(
    "all|anti|co|cross|ex|half|high|long|low|mid|multi|non|post|pre|pro|self|semi|short|sub|well", re.IGNORECASE
)
CUT_HEAD = re.compile(r"(?:.*[\W\d_])?([^\W\d_]{2,})[-\u2010]", re.DOTALL)
CUT_TAIL = re.compile(r"[a-zß-ÿ]\w*")
PASSWORD = 4  # PDFium's code
# PDFium is not thread-safe, even across documents.
ONE_AT_A_TIME = Lock()

Join = Callable[[str, str], str | None]


def is_pdf(file: File) -> bool:
    """Whether it starts with "%PDF-", or has it after other bytes and also ends like a PDF: a text may mention it."""
    if file.data[:64].lstrip(b"\xef\xbb\xbf\0\t\n\f\r ").startswith(b"%PDF-"):
        return True
    return b"%PDF-" in file.data[:1024] and b"startxref" in file.data[-2048:]


def read_pdf(file: File) -> Pieces:
    """One piece per page. An empty password is tried; pages without text are noted."""
    try:
        import pypdfium2
    except ImportError as error:
        raise DocumentError(file.source, f"reading PDF needs pypdfium2: {INSTALL}") from error
    try:
        with ONE_AT_A_TIME:
            pages, title = _read_pages(file)
    except DocumentError:
        raise
    except pypdfium2.PdfiumError as error:
        if error.err_code == PASSWORD:
            raise DocumentError(file.source, "is encrypted: remove its password first") from error
        raise DocumentError(file.source, f"is a broken PDF ({error})") from error
    blank = [number for number, lines in enumerate(pages, 1) if not lines]
    if len(blank) == len(pages):
        rule = f"has no text on its {len(pages)} pages (scanned images?): run OCR on it first"
        raise DocumentError(file.source, rule)
    notes = (f"no text on page {', '.join(map(str, blank))} (an image?)",) if blank else ()
    join = joining(pages)
    laid_out = [lay_out(lines, number, join) for number, lines in enumerate(pages, 1)]
    labels = [f"page {number}" for number in range(1, len(pages) + 1)]
    pieces = tuple((label, text) for label, (text, _) in zip(labels, laid_out, strict=True))
    return Pieces(pieces, title.strip(), notes, tuple(words for _, words in laid_out))


def _read_pages(file: File) -> tuple[list[list[Line]], str]:
    import pypdfium2

    document: Any = pypdfium2.PdfDocument(file.data)
    try:
        pages: list[list[Line]] = []
        characters = 0
        for page in document:
            lines = [[cleaned for word in line if (cleaned := _clean(word)).text] for line in page_lines(page)]
            pages.append([line for line in lines if line])
            page.close()
            characters += sum(len(word.text) + 1 for line in lines for word in line)
            file.limits.check_characters(file.source, characters)
        return pages, str(document.get_metadata_dict().get("Title", ""))
    finally:
        document.close()


def _clean(word: PageWord) -> PageWord:
    """A normalised word; a line-end hyphen is kept."""
    cut = "-" if word.text.endswith("\u00ad") else ""
    return PageWord("".join(normalise(word.text).split()) + cut * 2, word.box)


def joining(pages: list[list[Line]]) -> Join:
    """Join the halves of a hyphenated word: "agree-" + "ment", "non-" + "compete". None: they are two words.

    The spelling used elsewhere in the document wins; without one, the hyphen stays only after a prefix that usually
    keeps it.
    """
    spellings = Counter(
        found.lower()
        for lines in pages
        for line in lines
        for word in line
        for found in re.findall(r"\w+(?:-\w+)*", word.text)
    )

    def join(head: str, tail: str) -> str | None:
        if head.endswith("--"):  # it was a soft hyphen
            return head[:-2]
        first, second = CUT_HEAD.fullmatch(head), CUT_TAIL.match(tail)
        if not first or not second:
            return None
        cut, whole = f"{first[1]}-{second[0]}".lower(), f"{first[1]}{second[0]}".lower()
        equal = spellings[cut] == spellings[whole]
        keep = spellings[cut] > spellings[whole] or (equal and bool(COMPOUND.fullmatch(first[1])))
        return head[:-1] + "-" if keep else head[:-1]

    return join


def lay_out(lines: list[Line], page: int, join: Join) -> tuple[str, tuple[Word, ...]]:
    """The text of a page and its words. Lines are kept; a larger gap than usual becomes a blank line."""
    text, words = "", []
    breaks = [*paragraph_breaks(lines), False] if lines else []
    for number, (line, broken) in enumerate(zip(lines, breaks, strict=True)):
        following = lines[number + 1][0].text if number + 1 < len(lines) else ""
        for place, word in enumerate(line):
            last = place + 1 == len(line)
            joined = join(word.text, following) if last and following else None
            shown = joined if joined is not None else word.text.removesuffix("--") if last else word.text
            words.append(Word(len(text), len(text) + len(shown), page, *(round(edge, 5) for edge in word.box)))
            text += shown
            text += "" if joined is not None else (("\n\n" if broken else "\n") if last else " ")
    return text.rstrip("\n"), tuple(words)
