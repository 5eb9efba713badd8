"""/v1/rerank and /process, called as Open WebUI calls them: its two clients, written by us from their protocol."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.documents import small_model
from tests.documents.samples import pdf_bytes
from tests.serve.running import Running, running
from vcc.documents.document import read_document
from vcc.documents.ranking import relevance
from vcc.documents.shipped import load_asker

TOKEN = "a-token-of-some-length"
LINES = [["w1 w2 w3 w4."], ["w5 w6 w7."]]
OTHERS = [small_model.text(size, seed).replace("w50", "w0").replace("w51", "w0") for size, seed in ((40, 1), (600, 3))]
TEXTS = [OTHERS[0], "w50 w51 w52 w53. " * 30, OTHERS[1]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model.saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def service(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    limits = ("--max-size", "1", "--token", TOKEN)
    with running(tmp_path_factory.mktemp("service"), "--model", model, *limits) as one:
        yield one


@pytest.fixture(scope="module")
def client(service: Running) -> Iterator[httpx.Client]:
    with service.client(headers={"Authorization": f"Bearer {TOKEN}"}) as one:
        yield one


def reranked(client: httpx.Client, pairs: list[tuple[str, str]]) -> list[float]:
    """A reranker of Open WebUI: pairs of one query and texts in, scores in the order of the texts out."""
    texts = [text for _, text in pairs]
    payload = {"model": "reranker", "query": pairs[0][0], "documents": texts, "top_n": len(texts)}
    answer = client.post("/v1/rerank", json=payload)
    answer.raise_for_status()
    return [one["relevance_score"] for one in sorted(answer.json()["results"], key=lambda one: one["index"])]


def loaded(client: httpx.Client, path: Path, kind: str) -> list[tuple[str, dict[str, Any]]]:
    """A document loader of Open WebUI: a file in, its texts with metadata out."""
    headers = {"Content-Type": kind, "X-Filename": quote(path.name)}
    answer = client.put("/process", content=path.read_bytes(), headers=headers)
    answer.raise_for_status()
    found = answer.json()
    return [(one["page_content"], one["metadata"]) for one in (found if isinstance(found, list) else [found])]


def test_rerank_gives_the_relevance_of_every_text(client: httpx.Client, model: str) -> None:
    query = "w50 w51?"
    scores = reranked(client, [(query, text) for text in TEXTS])
    assert scores == pytest.approx(relevance(load_asker(model), query, TEXTS), rel=1e-4)
    assert scores.index(max(scores)) == 1, "the text with the words of the query is the most relevant"


def test_rerank_returns_the_best_first_and_top_n_of_them(client: httpx.Client) -> None:
    asked = {"query": "w50 w51?", "documents": [{"text": text} for text in TEXTS], "top_n": 2, "other": "ignored"}
    results = client.post("/v1/rerank", json=asked).json()["results"]
    assert len(results) == 2 and results[0]["index"] == 1
    assert results[0]["relevance_score"] >= results[1]["relevance_score"]


def test_no_end_of_a_text_is_cut(client: httpx.Client) -> None:
    """The words of the query stand behind thousands of others."""
    long = small_model.text(5000, 4).replace("w50", "w0").replace("w51", "w0")
    scores = reranked(client, [("w50 w51?", text) for text in (long, f"{long} w50 w51.")])
    assert scores[1] > scores[0]


def test_process_gives_the_pages_that_documents_have(client: httpx.Client, tmp_path: Path) -> None:
    path = tmp_path / "ä b.pdf"
    path.write_bytes(pdf_bytes(LINES, "Some words"))
    pages = loaded(client, path, "application/pdf")
    assert "\n\n".join(text for text, _ in pages) == read_document(path).text
    assert [about["page"] for _, about in pages] == [0, 1]
    assert {about["source"] for _, about in pages} == {"ä b.pdf"}


@pytest.mark.parametrize(
    ("data", "name", "code"),
    [
        (b"", "a.txt", 415),
        (b"%PDF-1.7 broken", "a.pdf", 422),
        (b"\x7fELF\0\0", "a.txt", 415),
        (b"w1 " * 500_000, "a.txt", 413),
    ],
)
def test_a_file_that_cannot_be_processed_says_why(client: httpx.Client, data: bytes, name: str, code: int) -> None:
    answer = client.put("/process", content=data, headers={"X-Filename": name})
    assert answer.status_code == code and answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"query": "w1?", "documents": []}, 422),
        ({"query": "w1?", "documents": ["w1"] * 1001}, 413),
        ({"query": " ?", "documents": ["w1"]}, 422),
        ({"query": "w" * 3000, "documents": ["w1"]}, 413),
        ({"query": "w1?", "documents": [5]}, 422),
        ({"query": "w1?", "documents": "w1"}, 422),
        ({"query": "w1?", "documents": ["w1"], "top_n": 0}, 422),
        ({"documents": ["w1"]}, 422),
        ({"query": "w1?", "documents": ["", " "]}, 200),
    ],
)
def test_a_request_to_rerank_is_checked(client: httpx.Client, body: dict[str, Any], code: int) -> None:
    assert client.post("/v1/rerank", json=body).status_code == code


def test_both_need_the_token(service: Running) -> None:
    asked = {"query": "w1?", "documents": ["w1"]}
    with service.client() as stranger:
        assert stranger.post("/v1/rerank", json=asked).status_code == 401
        assert stranger.put("/process", content=b"w1", headers={"X-Filename": "a.txt"}).status_code == 401
