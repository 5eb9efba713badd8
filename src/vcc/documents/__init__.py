"""Read a file, ask questions of it, and show what was found and what was read."""

from vcc.documents.answers import Answer, Reply
from vcc.documents.formats.read import read_document
from vcc.documents.text import Document, Part
from vcc.errors import DocumentError

__all__ = ["Answer", "Document", "DocumentError", "Part", "Reply", "read_document"]
