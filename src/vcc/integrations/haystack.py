"""Haystack 3: `VccReader`, an extractive reader for documents of any length."""

from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.dataclasses import ExtractedAnswer

from vcc.documents.document import Document as VccDocument
from vcc.errors import UsageError
from vcc.pipeline import as_text

ANSWERS = 10


@component
class VccReader:
    """Answers a query from documents, word for word. Whole documents are read; none is cut into windows or truncated.

    `model`: the folder of a wrapped model; None is the bundled one. `threshold`: how likely an answer must be right;
    unless given, the model's own setting.
    """

    def __init__(self, model: str | None = None, top_k: int = ANSWERS, threshold: float | None = None) -> None:
        if top_k < 1:
            raise UsageError(f"top_k is {top_k}: it must be at least 1")
        self.model, self.top_k, self.threshold = model, top_k, threshold

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, model=self.model, top_k=self.top_k, threshold=self.threshold)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "VccReader":
        return default_from_dict(cls, data)

    @component.output_types(answers=list[ExtractedAnswer])
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[ExtractedAnswer]]:
        """The best answers of all documents, best first; none if the model finds none."""
        wanted = self.top_k if top_k is None else top_k
        found: list[ExtractedAnswer] = []
        for document in documents:
            if not (document.content or "").strip():
                continue
            asked = VccDocument(as_text(document.content), self.model)
            for answer in asked.ask(query, wanted, self.threshold):
                found.append(extracted(query, document, answer))
        return {"answers": sorted(found, key=lambda one: -one.score)[:wanted]}


def extracted(query: str, document: Document, answer: Any) -> ExtractedAnswer:
    span = ExtractedAnswer.Span(answer.start, answer.end)
    about = {"place": answer.place, "sure": answer.sure}
    return ExtractedAnswer(
        query=query,
        score=answer.score,
        data=answer.text,
        document=document,
        context=answer.sentence,
        document_offset=span,
        meta=about,
    )
