"""Read documents, ask them questions, and show the answers."""

from vcc.documents.answer import Answer, Reply
from vcc.documents.document import Document, read_document
from vcc.documents.text import Part, Text
from vcc.errors import DocumentError

__all__ = ["Answer", "Document", "DocumentError", "Part", "Reply", "Text", "read_document"]
