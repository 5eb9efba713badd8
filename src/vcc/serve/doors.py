"""Routes that other programs speak already: /v1/rerank, Open WebUI's /process, and the tools of MCP at /mcp."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote

from fastapi import APIRouter, FastAPI, Header, HTTPException, Request
from pydantic import BaseModel, Field
from starlette.routing import Route

from vcc.documents.answer import PAGE, Reply
from vcc.documents.document import Document
from vcc.documents.ranking import relevance_of_tokens, tokens_of
from vcc.documents.text import Text
from vcc.errors import UsageError
from vcc.integrations.shelf import Findings
from vcc.printable import printable
from vcc.qa.model import Progress
from vcc.serve.engine import Engine
from vcc.serve.finding import LibraryFinder
from vcc.serve.library import NAME_LENGTH, LibraryEntry
from vcc.serve.routes import check_questions, in_pool, refused
from vcc.serve.uploads import check_type

RERANKED = 1_000  # documents in one request
SHOWN = 20  # names in a message
CALLS = 8  # MCP calls at once; the engine asks their questions in batches
Got = TypeVar("Got")


class RerankedText(BaseModel):
    """A text in the form that some clients send."""

    text: str


class RerankRequest(BaseModel):
    """What Cohere, Jina, LiteLLM and Open WebUI send; other fields are ignored."""

    model: str | None = None
    query: str
    documents: list[str | RerankedText] = Field(min_length=1)
    top_n: int | None = Field(None, ge=1)


class RerankResult(BaseModel):
    index: int = Field(description="the place of the document in the request, from 0")
    relevance_score: float


class RerankResponse(BaseModel):
    model: str
    results: list[RerankResult] = Field(description="best first")


class LoadedPage(BaseModel):
    """A page, chapter or file as Open WebUI keeps it."""

    page_content: str
    metadata: dict[str, Any]


def other_routes(engine: Engine) -> APIRouter:
    """Rerank texts, and turn a file into text."""
    routes, settings = APIRouter(tags=["other programs"]), engine.settings

    @routes.post("/v1/rerank", responses=refused(413, 422, 504))
    async def rerank(asked: RerankRequest) -> RerankResponse:
        """Order texts by their relevance to a query. All words of a text count; of a long one, the model reads the
        passages that share most words with the query."""
        check_questions([asked.query], 1, settings.question_characters)
        if len(asked.documents) > RERANKED:
            raise HTTPException(
                413, f"{len(asked.documents):,} documents in one request, above the limit of {RERANKED:,}"
            )
        texts = [one if isinstance(one, str) else one.text for one in asked.documents]
        answered = threading.Event()

        def step(done: int, total: int) -> None:
            if answered.is_set():  # nothing is kept of it, so nobody would find it done later
                raise TimeoutError

        def score() -> list[float]:
            tokens = tokens_of(engine.asker, texts, step)
            with engine.metrics.stage("reranking"), engine.turns.patient(step) as progress:
                return relevance_of_tokens(engine.asker, asked.query, tokens, progress)

        try:
            scores = await in_pool(engine.workers, score, settings.wait_seconds)
        finally:
            answered.set()
        ranked = sorted(range(len(texts)), key=lambda number: (-scores[number], number))[: asked.top_n]
        results = [RerankResult(index=number, relevance_score=scores[number]) for number in ranked]
        return RerankResponse(model=asked.model or "vcc", results=results)

    @routes.put("/process", responses=refused(413, 415, 422, 503, 504))
    async def process(request: Request, x_filename: Annotated[str, Header()] = "document") -> list[LoadedPage]:
        """Turn a file into text, page by page, for Open WebUI's external document loader. Nothing is kept."""
        data, name = await request.body(), printable(unquote(x_filename))[:NAME_LENGTH] or "document"
        check_type(data, name)
        return loaded(await in_pool(engine.loaders, lambda: engine.as_text(data, name), settings.wait_seconds), name)

    return routes


def loaded(text: Text, name: str) -> list[LoadedPage]:
    """The parts of a text; a text without parts is one."""
    pages = []
    for part in text.parts:
        page = PAGE.fullmatch(part.label)
        about: dict[str, Any] = {"source": name, "title": text.title, "place": part.label}
        if page:
            about["page"] = int(page.group(1)) - 1  # programs that load documents count them from 0
        pages.append(LoadedPage(page_content=text.text[part.start : part.end].strip(), metadata=about))
    return pages


class LibraryShelf:
    """The documents of a service, by their ids or names, for the tools of MCP."""

    def __init__(self, engine: Engine, finder: LibraryFinder) -> None:
        self.engine, self.finder = engine, finder

    def entry(self, name: str) -> LibraryEntry:
        all_entries = self.engine.library.all()
        found = [entry for entry in all_entries if entry.id == name] or [e for e in all_entries if e.name == name]
        if not found:
            known = ", ".join(f"{entry.name} ({entry.id})" for entry in all_entries[:SHOWN]) or "none is uploaded yet"
            raise UsageError(f"there is no document {printable(name)[:200]!r}; the documents are: {known}")
        if found[0].state != "ready":
            raise UsageError(found[0].error or f"{found[0].name} is not read yet: call again later")
        return found[0]

    def names(self, folder: str) -> list[str]:
        if folder:
            raise UsageError("the service has no folders: leave it out")
        return [entry.id for entry in self.engine.library.all() if entry.state == "ready"]

    def text(self, name: str) -> Text:
        return self.engine.document(self.entry(name).id).content

    def tokens(self, name: str, progress: Progress) -> int:
        entry = self.entry(name)
        progress(entry.tokens, entry.tokens)
        return entry.tokens

    def replies(self, name: str, questions: Sequence[str], top: int, progress: Progress) -> list[Reply]:
        futures = self.engine.submit(self.entry(name).id, questions)
        found = []
        for number, future in enumerate(futures, 1):
            try:
                found.append(future.result(self.engine.settings.wait_seconds))
            except TimeoutError:  # never wait for ever: the service may be ending
                raise UsageError("the answers are not ready yet: call again later") from None
            progress(number, len(futures))
        return found

    def use(self, name: str, work: Callable[[Document], Got], progress: Progress) -> Got:
        return self.engine.use(self.entry(name).id, "mcp", work)

    def find(self, question: str, folder: str, top: int, progress: Progress) -> Findings:
        if folder:
            raise UsageError("the service has no folders: leave it out")
        return Findings(tuple((entry.id, score) for entry, score in self.finder.find(question, top)))


class McpDoor:
    """The tools of MCP at /mcp, behind the same guard as all routes; absent where the package mcp is not installed.

    The package takes longer to import than the rest of the service, so the first call makes the tools. They run in a
    task of their own from then until the service ends.
    """

    def __init__(self, app: FastAPI, engine: Engine, finder: LibraryFinder) -> None:
        self.engine, self.finder = engine, finder
        self.installed = find_spec("mcp") is not None
        if self.installed:
            # POST only: the tools notify nobody, and a stream that a client opens with GET would take a place
            app.router.routes.append(Route("/mcp", self, methods=["POST"]))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.wanted.set()
        inner = await asyncio.shield(self.made)
        await inner(scope, receive, send)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        self.wanted, self.closed = asyncio.Event(), asyncio.Event()
        self.made: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(self.run())
        yield
        self.closed.set()
        self.wanted.set()
        await running

    async def run(self) -> None:
        """Wait for the first call, and serve until the end."""
        await self.wanted.wait()
        if self.closed.is_set():
            return
        try:
            server, inner = await asyncio.to_thread(self.make)
            async with server.session_manager.run():
                self.made.set_result(inner)
                await self.closed.wait()
        except Exception as error:
            if self.made.done():
                raise
            self.made.set_exception(error)  # the call reports it

    def make(self) -> tuple[Any, Any]:
        """The server of the tools, and the application that takes their calls."""
        from mcp.server.transport_security import TransportSecuritySettings

        from vcc.integrations.mcp import make_server

        logging.getLogger("mcp").setLevel(logging.WARNING)  # its other lines repeat what users write
        where, settings = "those of this service; read with an empty path lists them", self.engine.settings
        server = make_server(LibraryShelf(self.engine, self.finder), where, settings.wait_seconds, CALLS)
        inner = server.streamable_http_app(
            stateless_http=True,
            max_request_body_size=settings.file_bytes,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # the guard checks
        )
        return server, inner
