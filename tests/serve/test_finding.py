"""`/v1/find`: the documents that match are those of a catalogue of all, and their answers compete."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.documents import small_model
from tests.serve.running import Running, running
from vcc.documents.document import Document
from vcc.documents.finding import WEIGHTS, Catalogue, Sketch, question_vectors
from vcc.documents.formats.read import read_data
from vcc.documents.shipped import load_asker
from vcc.serve.engine import Engine
from vcc.serve.finding import LibraryFinder
from vcc.serve.library import Library, UnknownDocumentError
from vcc.serve.metrics import Metrics
from vcc.serve.settings import ServiceSettings

QUESTION = "w1 w2 ?"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model.saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def service(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("service"), "--model", model) as one:
        yield one


def expected(texts: dict[str, str], model: str) -> dict[str, float]:
    asker = load_asker(model)
    sketches = [Sketch.of(asker.index(read_data(text.encode(), "a.txt")), asker) for text in texts.values()]
    [vector], ids = question_vectors(asker, [QUESTION]), asker.qa.ids_of(QUESTION)
    return {list(texts)[match.number]: match.score for match in Catalogue.of(sketches).find(vector, ids, 99, WEIGHTS)}


def matches(client: httpx.Client) -> dict[str, float]:
    reply = client.post("/v1/find", json={"question": QUESTION, "ask": 0})
    assert reply.status_code == 200, reply.text
    return {one["id"]: one["match"] for one in reply.json()["documents"]}


def test_documents_are_found_until_they_are_deleted(service: Running, model: str, tmp_path: Path) -> None:
    with service.client() as client:
        assert client.post("/v1/find", json={"question": QUESTION}).json() == {"documents": [], "answers": []}
        texts = {}
        for seed in range(3):
            text = small_model.text(80 + 50 * seed, seed)
            texts[service.upload(text.encode(), f"{seed}.txt").json()["id"]] = text
        assert matches(client) == pytest.approx(expected(texts, model), abs=0.01)
        found = client.post("/v1/find", json={"question": QUESTION, "top": 2, "ask": 2}).json()
        best = [one["id"] for one in found["documents"]]
        assert best == list(expected(texts, model))[:2]
        answers = [(one["document"], one["start"], one["end"]) for one in found["answers"]]
        own = {
            (id, answer.start, answer.end)
            for id in best
            for answer in Document(read_data(texts[id].encode(), "a.txt"), model).ask(QUESTION, 5)
        }
        assert set(answers) == own and own
        scores = [one["score"] for one in found["answers"]]
        assert scores == sorted(scores, reverse=True)
        gone = best[0]
        assert client.delete(f"/v1/documents/{gone}").status_code == 204
        del texts[gone]
        assert matches(client) == pytest.approx(expected(texts, model), abs=0.01)
        assert client.post("/v1/find", json={"question": " "}).status_code == 422
        assert client.post("/v1/find", json={"question": QUESTION, "top": 0}).status_code == 422


def test_the_sketch_of_a_document_that_was_deleted_while_it_was_read_is_not_kept(tmp_path: Path, model: str) -> None:
    settings = ServiceSettings(tmp_path / "kept", model=model, readers=1)
    library = Library(settings.folder, settings.kept_bytes, settings.kept_hours)
    engine = Engine(settings, library, Metrics())
    try:
        finder = LibraryFinder(engine)
        entry = library.add(small_model.text(300).encode(), "a.txt")
        index = load_asker(model).index(small_model.document(300))
        library.delete(entry.id)
        with pytest.raises(UnknownDocumentError):
            finder.keep(entry.id, index)
        assert not list((tmp_path / "kept").rglob("sketch.safetensors"))
    finally:
        engine.close()
