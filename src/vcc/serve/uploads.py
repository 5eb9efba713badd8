"""Check uploads by their first bytes; the process that reads them does the rest."""

from vcc.documents.formats.read import FOREIGN, suffixes

TEXTUAL = 4096  # bytes that are checked
ARCHIVES = (".docx", ".epub")


class WrongTypeError(Exception):
    """An unsupported file format (415)."""


def check_type(data: bytes, name: str) -> None:
    """Raise if a file cannot be a document. Nothing is opened or unpacked here."""
    kinds = "PDF, DOCX, EPUB, HTML, Markdown and text"
    suffix = "." + name.lower().rpartition(".")[2] if "." in name else ""
    if not data.strip():
        raise WrongTypeError("the file is empty")
    if b"%PDF-" in data[:1024]:
        return
    if data.startswith(b"PK\x03\x04") and suffix in ARCHIVES:
        return
    for first_bytes, rule in FOREIGN.items():
        if data.startswith(first_bytes):
            raise WrongTypeError(f"the file {rule}; supported are {kinds}")
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    if suffix in (".pdf", *ARCHIVES) or (b"\0" in data[:TEXTUAL] and not wide):
        raise WrongTypeError(f"the file is not what its name says, or of an unsupported kind; supported are {kinds}")
    if suffix and suffix not in suffixes() and not is_text(data):
        raise WrongTypeError(f"{suffix[:20]} files are not supported; supported are {kinds}")


def is_text(data: bytes) -> bool:
    try:
        data[:TEXTUAL].decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > TEXTUAL - 4  # the sample may end inside a character
    return True
