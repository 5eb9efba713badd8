"""PDF, by pypdf: a piece a page, with the words that line ends cut in two put together again."""

import io
import logging
import re
from collections import Counter
from collections.abc import Iterator

from vcc.documents.formats.gate import File
from vcc.documents.text import INSTALL, Pieces
from vcc.errors import DocumentError

# A line that ends in "non-" is a compound far more often than a word cut in two.
COMPOUND = re.compile(
    "all|anti|co|cross|ex|half|high|long|low|mid|multi|non|post|pre|pro|self|semi|short|sub|well", re.IGNORECASE
)


def is_pdf(file: File) -> bool:
    return b"%PDF-" in file.data[:1024]


def read_pdf(file: File) -> Pieces:
    """One piece a page. A file locked with an empty password is opened; pages without text are noted."""
    try:
        import pypdf
    except ImportError as error:
        raise DocumentError(file.source, f"reading PDF needs pypdf: {INSTALL}") from error
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # its warnings on sloppy files are no news to the reader
    try:
        reader = pypdf.PdfReader(io.BytesIO(file.data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise DocumentError(file.source, "is encrypted; remove its password first")
        pages = [page.extract_text() for page in reader.pages]
        title = str(reader.metadata.title or "") if reader.metadata else ""
    except DocumentError:
        raise
    except pypdf.errors.DependencyError as error:
        raise DocumentError(file.source, f"is encrypted; {error}") from error
    except Exception as error:  # a damaged file can fail anywhere inside the library
        raise DocumentError(file.source, f"is a broken PDF ({type(error).__name__}: {error})") from error
    blank = [number for number, page in enumerate(pages, 1) if not page.strip()]
    if len(blank) == len(pages):
        rule = f"has no text on its {len(pages)} pages (scanned images?); run OCR on it first"
        raise DocumentError(file.source, rule)
    notes = (f"no text on page {', '.join(map(str, blank))} (an image?)",) if blank else ()
    return Pieces(tuple(join_hyphens(pages)), title.strip(), notes)


def join_hyphens(pages: list[str]) -> Iterator[tuple[str, str]]:
    """Rejoin words cut at a line end: "agree-" + "ment" to "agreement", "non-" + "compete" to "non-compete".

    The document itself decides: the spelling it uses elsewhere wins; where it uses neither, the hyphen stays only
    after a prefix that usually keeps it. Line breaks are otherwise kept, and words cut by a page end stay cut.
    """
    words = Counter(word.lower() for page in pages for word in re.findall(r"\w+(?:-\w+)*", page))

    def join(match: re.Match[str]) -> str:
        head, tail = match.groups()
        cut, whole = f"{head}-{tail}".lower(), f"{head}{tail}".lower()
        keep = words[cut] > words[whole] or (words[cut] == words[whole] and bool(COMPOUND.fullmatch(head)))
        return f"{head}-{tail}" if keep else f"{head}{tail}"

    for number, page in enumerate(pages, 1):
        page = re.sub(r"\u00ad[^\S\n]*\n[^\S\n]*", "", page)
        yield f"page {number}", re.sub(r"\b([^\W\d_]{2,})[-\u2010][^\S\n]*\n[^\S\n]*([a-zß-ÿ]\w*)", join, page)
