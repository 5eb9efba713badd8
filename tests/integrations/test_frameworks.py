"""Haystack, LangChain and LlamaIndex: our components in their own pipelines, and in LangChain's own test suite."""

from pathlib import Path
from typing import Any

import pytest

from tests.documents import small_model
from vcc.documents.document import Document
from vcc.documents.ranking import relevance
from vcc.documents.shipped import load_asker
from vcc.pipeline import as_text

QUERY = "w50 w51?"
TEXTS = [small_model.text(60, 1), "w50 w51 w52. " * 20, small_model.text(300, 3), small_model.text(30, 4)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model.saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("files")
    for number, text in enumerate(TEXTS):
        (place / f"{number}.txt").write_text(text)
    return str(place)


def order(model: str) -> list[int]:
    scores = relevance(load_asker(model), QUERY, TEXTS)
    return sorted(range(len(TEXTS)), key=lambda number: -scores[number])


class TestHaystack:
    def test_the_reader_answers_in_a_pipeline_that_was_saved_and_loaded(self, model: str) -> None:
        haystack = pytest.importorskip("haystack")
        from vcc.integrations.haystack import VccReader

        made = haystack.Pipeline()
        made.add_component("reader", VccReader(model, top_k=3))
        loaded = haystack.Pipeline.loads(made.dumps(), allowed_modules=["vcc.integrations.haystack"])
        documents = [haystack.Document(content=text) for text in (*TEXTS, "", None)]
        answers = loaded.run({"reader": {"query": QUERY, "documents": documents}})["reader"]["answers"]
        expected = sorted(
            (answer.score for text in TEXTS for answer in Document(as_text(text), model).ask(QUERY, 3)), reverse=True
        )
        assert [answer.score for answer in answers] == pytest.approx(expected[:3])
        for answer in answers:
            span = answer.document_offset
            assert answer.document.content[span.start : span.end] == answer.data and answer.query == QUERY

    def test_it_keeps_its_settings(self) -> None:
        pytest.importorskip("haystack")
        from vcc.integrations.haystack import VccReader

        again = VccReader.from_dict(VccReader("folder", 7, 0.2).to_dict())
        assert (again.model, again.top_k, again.threshold) == ("folder", 7, 0.2)


class TestLangChain:
    def test_the_compressor_reranks_and_keeps_metadata(self, model: str) -> None:
        core = pytest.importorskip("langchain_core.documents")
        from vcc.integrations.langchain import VccCompressor

        given = [core.Document(page_content=text, metadata={"number": n}) for n, text in enumerate(TEXTS)]
        found = VccCompressor(top_n=2, model=model).compress_documents(given, QUERY)
        assert [one.metadata["number"] for one in found] == order(model)[:2]
        assert "relevance_score" not in given[0].metadata, "the caller's documents stay as they are"
        assert VccCompressor().compress_documents([], QUERY) == []

    def test_the_retriever_is_a_step_of_a_chain(self, model: str, folder: str) -> None:
        runnables = pytest.importorskip("langchain_core.runnables")
        from vcc.integrations.langchain import VccRetriever

        chain = VccRetriever(paths=[folder], k=2, model=model) | runnables.RunnableLambda(
            lambda found: [Path(one.metadata["source"]).name for one in found]
        )
        assert chain.invoke(QUERY) == [f"{number}.txt" for number in order(model)[:2]]


try:
    from langchain_tests.integration_tests import RetrieversIntegrationTests
except ImportError:
    RetrieversIntegrationTests = None


if RetrieversIntegrationTests is not None:

    @pytest.mark.asyncio
    class TestLangChainsOwnSuite(RetrieversIntegrationTests):
        """Their tests of a retriever."""

        @pytest.fixture(autouse=True)
        def given(self, model: str, folder: str) -> None:
            type(self).parameters = {"paths": [folder], "model": model}

        @property
        def retriever_constructor(self) -> Any:
            from vcc.integrations.langchain import VccRetriever

            return VccRetriever

        @property
        def retriever_constructor_params(self) -> dict[str, Any]:
            return type(self).parameters

        @property
        def retriever_query_example(self) -> str:
            return QUERY


class TestLlamaIndex:
    def test_the_postprocessor_reranks(self, model: str) -> None:
        schema = pytest.importorskip("llama_index.core.schema")
        from vcc.errors import UsageError
        from vcc.integrations.llama_index import VccRerank

        nodes = [schema.NodeWithScore(node=schema.TextNode(text=text)) for text in TEXTS]
        found = VccRerank(top_n=2, model=model).postprocess_nodes(nodes, query_str=QUERY)
        assert [one.node.text for one in found] == [TEXTS[number] for number in order(model)[:2]]
        assert found[0].score >= found[1].score
        with pytest.raises(UsageError, match="query"):
            VccRerank(model=model).postprocess_nodes(nodes)

    def test_the_retriever_feeds_a_query_engine(self, model: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("llama_index.core")
        from llama_index.core import Settings
        from llama_index.core.llms import MockLLM
        from llama_index.core.query_engine import RetrieverQueryEngine
        from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer

        from vcc.integrations.llama_index import VccFileRetriever, VccRerank

        monkeypatch.setattr(Settings, "_llm", MockLLM())
        retriever = VccFileRetriever([folder], 3, model)
        silent = get_response_synthesizer(response_mode=ResponseMode.NO_TEXT)
        engine = RetrieverQueryEngine(retriever, silent, node_postprocessors=[VccRerank(top_n=1, model=model)])
        (best,) = engine.query(QUERY).source_nodes
        assert Path(best.node.metadata["source"]).name == f"{order(model)[0]}.txt"
