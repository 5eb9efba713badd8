"""LangChain 1: a retriever over files, and a compressor that reranks documents."""

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field, PrivateAttr

from vcc.documents.ranking import relevance
from vcc.documents.shipped import load_asker
from vcc.documents.text import Text
from vcc.integrations.shelf import read_texts


class VccRetriever(BaseRetriever):
    """The files that are most relevant to a query, each as a document of its own, whole."""

    paths: list[str]  # files, folders or patterns
    k: int = Field(default=4, ge=1)
    model: str | None = None  # the folder of a wrapped model; None is the bundled one
    _texts: list[Text] | None = PrivateAttr(default=None)

    def texts(self) -> list[Text]:
        """The files, read once."""
        if self._texts is None:
            self._texts = read_texts(self.paths)
        return self._texts

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None, **_: Any
    ) -> list[Document]:
        texts = self.texts()
        scores = relevance(load_asker(self.model), query, [text.text for text in texts])
        ranked = sorted(zip(scores, texts, strict=True), key=lambda pair: -pair[0])[: k or self.k]
        return [
            Document(page_content=text.text, metadata={"source": text.source, "title": text.title, "score": score})
            for score, text in ranked
        ]


class VccCompressor(BaseDocumentCompressor):
    """The most relevant documents first, `top_n` of them. Every document is read whole."""

    top_n: int = Field(default=4, ge=1)
    model: str | None = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        texts = [document.page_content for document in documents]
        scores = relevance(load_asker(self.model), query, texts) if texts else []
        ranked = sorted(zip(scores, documents, strict=True), key=lambda pair: -pair[0])[: self.top_n]
        return [
            document.model_copy(update={"metadata": {**document.metadata, "relevance_score": score}})
            for score, document in ranked
        ]
