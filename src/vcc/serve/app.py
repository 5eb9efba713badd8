"""The service as one ASGI application: routes, page and monitoring, all behind the guard."""

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from vcc.documents.isolated import NoProcessError
from vcc.errors import UsageError
from vcc.serve import schemas
from vcc.serve.doors import McpDoor, other_routes
from vcc.serve.engine import Engine, LimitError
from vcc.serve.finding import LibraryFinder, find_routes
from vcc.serve.forms import form_routes
from vcc.serve.guard import Guard, fault_words
from vcc.serve.library import NO_ROOM, FolderError, FullError, Library, UnknownDocumentError
from vcc.serve.metrics import Metrics
from vcc.serve.reviews import Reviews
from vcc.serve.routes import document_routes, refused, review_routes
from vcc.serve.settings import ServiceSettings
from vcc.serve.uploads import WrongTypeError
from vcc.version import __version__

log = logging.getLogger("vcc.serve")
STATIC = Path(__file__).parent / "static"
TIDY = 600  # seconds between checks for expired documents
SHOWN_LIMITS = (
    *("file_bytes", "pages", "tokens", "questions", "question_characters", "reviewed", "at_once"),
    *("waiting", "wait_seconds", "body_seconds", "reading_seconds", "kept_bytes", "kept_hours"),
)


def make_app(settings: ServiceSettings) -> Guard:
    """The application. The model is loaded first, so its errors are reported before a port is opened."""
    metrics = Metrics()
    library = Library(settings.folder, settings.kept_bytes, settings.kept_hours)
    engine = Engine(settings, library, metrics)
    reviews, finder = Reviews(engine), LibraryFinder(engine)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        tidying = asyncio.create_task(tidy(engine, reviews))
        async with door.opened():
            yield
        tidying.cancel()
        reviews.close()
        engine.close()

    app = FastAPI(
        title="VCC",
        version=__version__,
        description="Ask long documents: upload one, wait until it is read, ask. Answers include their place.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        responses={},
    )
    app.include_router(document_routes(engine, reviews))
    app.include_router(review_routes(engine, reviews))
    app.include_router(other_routes(engine))
    door = McpDoor(app, engine, finder)
    app.include_router(form_routes(engine))
    app.include_router(find_routes(engine, finder))
    add_watching(app, engine, metrics)
    add_errors(app)
    add_page(app)
    return Guard(app, settings, metrics)


def add_watching(app: FastAPI, engine: Engine, metrics: Metrics) -> None:
    """Health, readiness and metrics, for monitoring."""

    @app.get("/health", tags=["service"])
    async def health() -> dict[str, str]:
        """The service runs. Needs no token."""
        return {"status": "ok"}

    @app.get("/ready", tags=["service"], responses=refused())
    async def ready() -> dict[str, Any]:
        """The model is loaded and questions are answered."""
        return {"status": "ready", "waiting": engine.in_queue}

    @app.get("/metrics", tags=["service"], responses=refused(), response_class=Response)
    def counted() -> Response:
        """Counters for Prometheus."""
        states = Counter(entry.state for entry in engine.library.all())
        for state in ("waiting", "reading", "ready", "failed"):
            metrics.documents.labels(state).set(states[state])
        metrics.kept.set(engine.library.size())
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/version", tags=["service"], responses=refused())
    def versions() -> schemas.VersionSchema:
        """What runs here, and its limits."""
        limits = {name: getattr(engine.settings, name) for name in SHOWN_LIMITS}
        return schemas.VersionSchema(version=__version__, model=engine.model_hash[:16], limits=limits)


def add_errors(app: FastAPI) -> None:
    """Every error response is {"error": message}."""

    def words(code: int, message: str, headers: Any = None) -> JSONResponse:
        return JSONResponse({"error": message}, code, headers)

    @app.exception_handler(HTTPException)
    async def known(_: Request, error: HTTPException) -> JSONResponse:
        return words(error.status_code, str(error.detail), error.headers)

    @app.exception_handler(RequestValidationError)
    async def not_as_described(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"] if isinstance(step, (str, int)))[:100]
        return words(422, f"{place}: {first['msg']}"[:300].encode("utf-8", "replace").decode())

    @app.exception_handler(UnknownDocumentError)
    async def unknown(_: Request, error: UnknownDocumentError) -> JSONResponse:
        return words(404, str(error))

    @app.exception_handler(WrongTypeError)
    async def wrong_type(_: Request, error: WrongTypeError) -> JSONResponse:
        return words(415, str(error))

    @app.exception_handler(LimitError)
    async def of_a_file(_: Request, error: LimitError) -> JSONResponse:
        return words(error.code, error.rule)

    @app.exception_handler(NoProcessError)
    async def no_process(_: Request, error: NoProcessError) -> JSONResponse:
        return words(503, "the service cannot read files now; try again later")

    @app.exception_handler(FullError)
    async def full(_: Request, error: FullError) -> JSONResponse:
        return words(error.code, str(error))

    @app.exception_handler(FolderError)
    async def cannot_be_written(_: Request, error: FolderError) -> JSONResponse:
        return words(503, str(error))

    @app.exception_handler(OSError)
    async def of_the_system(request: Request, error: OSError) -> JSONResponse:
        if error.errno in NO_ROOM:  # also where a large upload waits until it is complete
            return words(507, "the disk of the service is full: delete some documents")
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            return words(503, "the service cannot write to its folder")
        raise error

    @app.exception_handler(UsageError)
    async def usage(_: Request, error: UsageError) -> JSONResponse:
        return words(422, str(error))

    @app.exception_handler(Exception)
    async def fault(request: Request, _: Exception) -> JSONResponse:
        """The guard logs it: it is raised again after this answer."""
        return words(500, fault_words(request.scope["request_id"]))


def add_page(app: FastAPI) -> None:
    """The page, its scripts, and the description of the routes."""
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", media_type="text/html; charset=utf-8")

    @app.get("/docs", include_in_schema=False)
    def docs() -> FileResponse:
        return FileResponse(STATIC / "docs.html", media_type="text/html; charset=utf-8")


async def tidy(engine: Engine, reviews: Reviews) -> None:
    """Delete documents that are too old, and what could not be deleted before."""

    def expire(id: str) -> None:
        engine.forget(id)
        reviews.forget(id)

    while True:
        for id in engine.library.too_old():
            await asyncio.to_thread(quietly, partial(expire, id))
        await asyncio.to_thread(quietly, engine.sweep)
        await asyncio.sleep(TIDY)


def quietly(work: Callable[[], object]) -> None:
    """Do it, or log why it could not be done; the next round tries again."""
    try:
        work()
    except UnknownDocumentError:  # someone else has deleted it
        pass
    except Exception as error:
        log.error("tidying: %s", error)
