"""What may be uploaded, told by the first bytes: the rest is found out by the process that reads it."""

from vcc.documents.formats.read import FOREIGN, suffixes

TEXTUAL = 4096  # bytes looked at
ARCHIVES = (".docx", ".epub")


class WrongTypeError(Exception):
    """A file of a kind that the service does not read: 415."""


def check_type(data: bytes, name: str) -> None:
    """Refuse what is surely no document. Nothing is opened or unpacked here."""
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
            raise WrongTypeError(f"the file {rule}; {kinds} are read")
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    if suffix in (".pdf", *ARCHIVES) or (b"\0" in data[:TEXTUAL] and not wide):
        raise WrongTypeError(f"the file is not what its name says, or of another kind; {kinds} are read")
    if suffix and suffix not in suffixes() and not is_text(data):
        raise WrongTypeError(f"files named {suffix[:20]} are not read; {kinds} are")


def is_text(data: bytes) -> bool:
    try:
        data[:TEXTUAL].decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > TEXTUAL - 4  # cut in the middle of a letter
    return True
