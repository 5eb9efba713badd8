"""Requests that take long, or come while their document goes, leave all others alone."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import FileResponse

from tests.documents import small_model
from tests.serve.running import until
from vcc.documents import ranking
from vcc.documents.isolated import NoProcessError, ReadingError
from vcc.qa.model import QaModel
from vcc.serve import engine as module
from vcc.serve.app import add_errors
from vcc.serve.doors import other_routes
from vcc.serve.engine import Engine
from vcc.serve.finding import LibraryFinder, find_routes
from vcc.serve.forms import form_routes
from vcc.serve.library import Library
from vcc.serve.metrics import Metrics
from vcc.serve.reviews import Reviews
from vcc.serve.routes import document_routes
from vcc.serve.settings import ServiceSettings

MORE_THAN_THREADS = 50  # that the server has for requests: 40
TEXTS = [small_model.text(60, seed) for seed in range(4)]
Call = Callable[[httpx.AsyncClient, str], Awaitable[httpx.Response]]


def rerank(client: httpx.AsyncClient, id: str) -> Awaitable[httpx.Response]:
    return client.post("/v1/rerank", json={"query": "w1 w2?", "documents": TEXTS})


def heatmap(client: httpx.AsyncClient, id: str) -> Awaitable[httpx.Response]:
    return client.post(f"/v1/documents/{id}/heatmap", json={"question": "w1 w2?"})


def verify(client: httpx.AsyncClient, id: str) -> Awaitable[httpx.Response]:
    return client.post(f"/v1/documents/{id}/verify", json={"text": "w1 w2 w3 w4."})


def find(client: httpx.AsyncClient, id: str) -> Awaitable[httpx.Response]:
    return client.post("/v1/find", json={"question": "w1 w2?"})


def process(client: httpx.AsyncClient, id: str) -> Awaitable[httpx.Response]:
    return client.put("/process", content=b"w1 w2 w3.", headers={"X-Filename": "a.txt"})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model.saved(tmp_path_factory.mktemp("model"))


@pytest.fixture
def engine(model: str, tmp_path: Path) -> Iterator[Engine]:
    settings = ServiceSettings(tmp_path, model=model, wait_seconds=1, readers=2)
    one = Engine(settings, Library(tmp_path, settings.kept_bytes, settings.kept_hours), Metrics())
    yield one
    one.close()


@pytest.fixture
def id(engine: Engine) -> str:
    found = engine.library.add(small_model.text(100).encode(), "a.txt").id
    engine.read(found)
    until(lambda: engine.library.get(found).state == "ready")
    return found


def with_client(engine: Engine, use: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    """What `use` gives with a client of a service with this engine."""
    app, reviews, finder = FastAPI(), Reviews(engine), LibraryFinder(engine)
    for routes in (
        document_routes(engine, reviews),
        other_routes(engine),
        form_routes(engine),
        find_routes(engine, finder),
    ):
        app.include_router(routes)
    add_errors(app)

    async def run() -> Any:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
            return await use(client)

    return asyncio.run(run())


@pytest.mark.parametrize("call", [rerank, heatmap, verify, find])
def test_requests_that_wait_for_the_model_leave_threads_for_others(engine: Engine, id: str, call: Call) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        assert (await call(client, id)).status_code == 200
        with engine.turns.urgent():  # someone else has the model
            late = await asyncio.gather(*(call(client, id) for _ in range(MORE_THAN_THREADS)))
            assert {answer.status_code for answer in late} == {504}
            assert (await asyncio.wait_for(client.get("/v1/documents"), 30)).status_code == 200

    with_client(engine, use)


def test_a_ranking_that_nobody_waits_for_is_not_made(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    monkeypatch.setattr(QaModel, "read", lambda qa, texts: reads.append(len(texts)))

    async def use(client: httpx.AsyncClient) -> None:
        with engine.turns.urgent():
            assert (await rerank(client, "")).status_code == 504

    with_client(engine, use)
    engine.workers.shutdown(wait=True)
    assert reads == []


def test_a_question_comes_in_between_two_steps_of_a_ranking(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    read = QaModel.read
    monkeypatch.setattr(ranking, "IN_A_BATCH", 1)  # a step for each text

    def question() -> None:
        with engine.turns.urgent():
            noted.append("question")

    def noting(qa: QaModel, texts: Any) -> Any:
        if not noted:
            asking.start()
            until(lambda: engine.turns.waiting)
        noted.append("text")
        return read(qa, texts)

    asking = threading.Thread(target=question)
    monkeypatch.setattr(QaModel, "read", noting)
    assert with_client(engine, lambda client: rerank(client, "")).status_code == 200
    asking.join(30)
    assert noted == ["text", "question", *["text"] * 3]


class Readers:
    """Stands for the processes that read files, and counts those at work."""

    def __init__(self) -> None:
        self.lock, self.free = threading.Lock(), threading.Event()
        self.at_work = self.most = 0

    def __call__(self, *given: Any) -> Any:
        with self.lock:
            self.at_work += 1
            self.most = max(self.most, self.at_work)
        self.free.wait(0.2)
        with self.lock:
            self.at_work -= 1
        return real_read(*given)


real_read = module.read_isolated


def test_no_more_files_are_read_at_once_than_there_are_readers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may need gigabytes."""
    readers = Readers()
    monkeypatch.setattr(module, "read_isolated", readers)

    async def use(client: httpx.AsyncClient) -> None:
        for seed in range(3):
            file = {"file": ("a.txt", small_model.text(50, seed).encode())}
            assert (await client.post("/v1/documents", files=file)).status_code == 202
        await asyncio.gather(*(process(client, "") for _ in range(6)))

    with_client(engine, use)
    until(lambda: not engine.in_queue)
    assert readers.most == engine.settings.readers


@pytest.mark.parametrize(
    ("error", "times", "code"),
    [
        (ReadingError("a.txt", "crashed its reader (SIGKILL)", "crash"), 2, 200),  # someone else has killed it
        (ReadingError("a.txt", "crashed its reader (SIGKILL)", "crash"), 9, 422),
        (ReadingError("a.txt", "could not be read in time", "hang"), 1, 504),
        (NoProcessError("no process could be started"), 9, 503),
    ],
)
def test_a_file_is_only_refused_for_what_is_in_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception, times: int, code: int
) -> None:
    left = [error] * times

    def read(*given: Any) -> Any:
        if left:
            raise left.pop()
        return real_read(*given)

    monkeypatch.setattr(module, "read_isolated", read)
    assert with_client(engine, lambda client: process(client, "")).status_code == code


def test_a_refused_file_names_no_option_that_a_client_cannot_set(engine: Engine) -> None:
    object.__setattr__(engine.settings, "tokens", 1)  # 10 characters

    async def use(client: httpx.AsyncClient) -> httpx.Response:
        return await client.put("/process", content=b"w1 " * 100, headers={"X-Filename": "a.txt"})

    answer = with_client(engine, use)
    assert answer.status_code == 422 and "above the limit of 10" in answer.json()["error"]
    assert "--" not in answer.json()["error"]


@pytest.mark.parametrize(("kind", "owner", "name"), [("text", Path, "read_text"), ("file", FileResponse, "__call__")])
def test_a_document_that_is_deleted_while_it_is_opened_is_unknown(
    engine: Engine, id: str, monkeypatch: pytest.MonkeyPatch, kind: str, owner: Any, name: str
) -> None:
    engine.open.clear()
    real = getattr(owner, name)

    def just_deleted(self: Any, *given: Any, **named: Any) -> Any:
        if id in engine.library.entries:
            engine.library.delete(id)
        return real(self, *given, **named)

    monkeypatch.setattr(owner, name, just_deleted)
    answer = with_client(engine, lambda client: client.get(f"/v1/documents/{id}/{kind}"))
    assert answer.status_code == 404 and "deleted" in answer.json()["error"]


def test_a_search_leaves_out_what_is_deleted_while_it_is_asked(
    engine: Engine, id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = engine.library.add(small_model.text(100, 5).encode(), "b.txt").id
    engine.read(other)
    until(lambda: engine.library.get(other).state == "ready")
    submit = engine.submit

    def deleting(asked: str, questions: Any) -> Any:
        if asked == id:
            engine.forget(id)
        return submit(asked, questions)

    monkeypatch.setattr(engine, "submit", deleting)
    answer = with_client(engine, lambda client: find(client, id))
    assert answer.status_code == 200
    assert [one["id"] for one in answer.json()["documents"]] == [other]
    assert {one["document"] for one in answer.json()["answers"]} <= {other}
