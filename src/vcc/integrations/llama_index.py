"""LlamaIndex: a retriever over files, and a node postprocessor that reranks."""

from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import Field
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

from vcc.documents.ranking import relevance
from vcc.documents.shipped import load_asker
from vcc.errors import UsageError
from vcc.integrations.shelf import read_texts


class VccRerank(BaseNodePostprocessor):
    """The nodes that are most relevant to the query first, `top_n` of them. Every node is read whole."""

    top_n: int = Field(default=4, ge=1)
    model: str | None = Field(default=None, description="the folder of a wrapped model; None is the bundled one")

    @classmethod
    def class_name(cls) -> str:
        return "VccRerank"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise UsageError("reranking needs a query: give query_str or query_bundle")
        if not nodes:
            return []
        texts = [one.node.get_content(metadata_mode=MetadataMode.NONE) for one in nodes]
        scores = relevance(load_asker(self.model), query_bundle.query_str, texts)
        ranked = sorted(zip(scores, nodes, strict=True), key=lambda pair: -pair[0])[: self.top_n]
        return [NodeWithScore(node=one.node, score=score) for score, one in ranked]


class VccFileRetriever(BaseRetriever):
    """The files that are most relevant to a query, each as one node, whole."""

    def __init__(self, paths: list[str], similarity_top_k: int = 4, model: str | None = None, **options: Any) -> None:
        if similarity_top_k < 1:
            raise UsageError(f"similarity_top_k is {similarity_top_k}: it must be at least 1")
        self.similarity_top_k, self.model = similarity_top_k, model
        texts = read_texts(paths)
        self.nodes = [TextNode(text=text.text, metadata={"source": text.source, "title": text.title}) for text in texts]
        super().__init__(**options)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        scores = relevance(load_asker(self.model), query_bundle.query_str, [node.text for node in self.nodes])
        ranked = sorted(zip(scores, self.nodes, strict=True), key=lambda pair: -pair[0])[: self.similarity_top_k]
        return [NodeWithScore(node=node, score=score) for score, node in ranked]
