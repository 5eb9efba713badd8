"""Read a file, ask questions of it, and show what was found and what was read."""

from vcc.documents.answers import Answer, Reply
from vcc.documents.document import Document, DocumentError, Part
from vcc.documents.files import read_document

__all__ = ["Answer", "Document", "DocumentError", "Part", "Reply", "read_document"]
