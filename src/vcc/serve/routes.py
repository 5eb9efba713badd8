"""The routes. Each calls the engine and returns a schema; every error has a status code and a message."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, HTTPException, Query, Response, UploadFile
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, StreamingResponse

from vcc.documents.question_list import CLAUSE_QUESTIONS, parse_questions
from vcc.documents.review_table import Question
from vcc.documents.show.spreadsheet import csv_bytes, xlsx_bytes
from vcc.documents.text import Text
from vcc.serve import schemas
from vcc.serve.engine import Engine
from vcc.serve.events import FINISHED, events
from vcc.serve.library import Library, LibraryEntry
from vcc.serve.reviews import Reviews
from vcc.serve.uploads import check_type

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
CODES = {
    401: "no token, or not the right one",
    404: "there is no such document or review",
    409: "the document is not read yet, or could not be read",
    413: "larger, longer or more than the service takes",
    415: "not a kind of file that is read",
    422: "the request, or the file, is not as it should be",
    429: "too many requests at once, or too many documents waiting",
    503: "the service's folder is full, or cannot be written",
    504: "not ready within the time that a call waits; the work goes on",
    507: "the service's disk is full",
}
NO_ROOM = (503, 507)
Got = TypeVar("Got")
Wait = Annotated[float, Query(ge=0, description="seconds to wait for reading to finish, up to the service's limit")]


def refused(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": schemas.ErrorSchema, "description": CODES[code]} for code in (401, *codes)}


def document_routes(engine: Engine, reviews: Reviews) -> APIRouter:
    """Upload, progress, text, file, ask, heat map, delete."""
    routes, library, settings = APIRouter(prefix="/v1/documents", tags=["documents"]), engine.library, engine.settings

    @routes.post("", status_code=202, responses=refused(413, 415, 422, 429, 503, 504, 507))
    async def upload(file: UploadFile, wait: Wait = 0) -> schemas.DocumentSchema:
        """Upload a document (PDF, DOCX, EPUB, HTML, Markdown or text). It is read in the background."""
        data, name = await file.read(), file.filename or "document"
        if len(data) > settings.file_bytes:
            raise HTTPException(413, f"the file has {len(data):,} bytes, above the limit of {settings.file_bytes:,}")
        check_type(data, name)
        if engine.in_queue >= settings.waiting:
            raise HTTPException(429, f"{settings.waiting} documents are already waiting to be read; try again later")
        entry = await run_in_threadpool(library.add, data, name)
        engine.read(entry.id)
        if wait:
            entry = await until_read(lambda: library.get(entry.id), min(wait, settings.wait_seconds))
            if entry.state == "failed":
                raise HTTPException(entry.code, entry.error)
            if entry.state == "waiting":  # no room; what is answered with an error leaves nothing
                await run_in_threadpool(engine.forget, entry.id)
                raise HTTPException(entry.code, entry.error)
        return schemas.DocumentSchema.of(entry)

    @routes.get("", responses=refused())
    def all_documents() -> schemas.DocumentsSchema:
        """All documents, latest first."""
        return schemas.DocumentsSchema(documents=[schemas.DocumentSchema.of(entry) for entry in library.all()])

    @routes.get("/{id}", responses=refused(404))
    def one_document(id: str) -> schemas.DocumentSchema:
        """A document and the progress of reading it."""
        return schemas.DocumentSchema.of(library.get(id))

    @routes.get("/{id}/events", responses=refused(404), response_class=StreamingResponse)
    def document_events(id: str) -> StreamingResponse:
        """The same as server-sent events, whenever it changes."""
        library.get(id)
        return events(lambda: library.get(id), settings.reading_seconds * 10)

    @routes.get("/{id}/text", responses=refused(404, 409))
    def text(id: str) -> schemas.TextSchema:
        """The text of a document, which the offsets of answers refer to, and its parts."""
        return schemas.TextSchema.of(ready_text(engine, id))

    @routes.get("/{id}/span", responses=refused(404, 409, 422))
    def span(id: str, start: Annotated[int, Query(ge=0)], end: Annotated[int, Query(ge=1)]) -> schemas.SpanSchema:
        """The place of characters start..end - 1, for links into a document."""
        content = ready_text(engine, id)
        if not start < end <= len(content.text):
            raise HTTPException(422, f"span {start}..{end} must be non-empty and lie in 0..{len(content.text)}")
        return schemas.SpanSchema.of(content, start, end)

    @routes.get("/{id}/file", responses=refused(404), response_class=FileResponse)
    def original(id: str) -> FileResponse:
        """The file as uploaded, for saving or drawing, never for execution."""
        kind = "application/pdf" if library.get(id).pdf else "application/octet-stream"
        headers = {
            "content-security-policy": "default-src 'none'; sandbox",
            "content-disposition": 'attachment; filename="document"',
        }
        return KeptFile(library, id, media_type=kind, headers=headers)

    @routes.post("/{id}/ask", responses=refused(404, 409, 413, 422, 504))
    async def answer_questions(id: str, asked: schemas.AskRequest) -> schemas.RepliesSchema:
        """Answer questions; those of several callers are batched."""
        check_questions(asked.questions, settings.questions, settings.question_characters)
        await run_in_threadpool(ready_text, engine, id)
        found = await in_time(engine.submit(id, asked.questions), settings.wait_seconds)
        return schemas.RepliesSchema(replies=[schemas.ReplySchema.of(reply, asked.top) for reply in found])

    @routes.post("/{id}/heatmap", responses=refused(404, 409, 413, 422, 504))
    async def heatmap(id: str, asked: schemas.HeatmapRequest) -> schemas.HeatmapSchema:
        """What each compressed layer opened for a question."""
        check_questions([asked.question], 1, settings.question_characters)
        await run_in_threadpool(ready_text, engine, id)
        seen = await in_pool(engine.workers, lambda: engine.see(id, asked.question), settings.wait_seconds)
        return schemas.HeatmapSchema.of(seen, asked.cells)

    @routes.delete("/{id}", status_code=204, responses=refused(404, 503))
    def delete(id: str) -> None:
        """Delete a document, its file, its index, and its rows in reviews."""
        try:
            engine.forget(id)
        finally:  # also where its index could not be removed
            if id not in library.entries:
                reviews.forget(id)

    return routes


def review_routes(engine: Engine, reviews: Reviews) -> APIRouter:
    """Many documents, a list of questions: start, progress, table, spreadsheets."""
    routes, settings = APIRouter(prefix="/v1/reviews", tags=["reviews"]), engine.settings

    @routes.post("", status_code=202, responses=refused(404, 413, 422, 429))
    def start(asked: schemas.ReviewRequest) -> schemas.ReviewSchema:
        """Ask documents the 41 clause questions of CUAD, or your own."""
        if len(asked.documents) > settings.reviewed:
            words = f"{len(asked.documents)} documents in one review, above the limit of {settings.reviewed}"
            raise HTTPException(413, words)
        questions = CLAUSE_QUESTIONS
        if asked.questions is not None:
            questions = tuple(Question(**question.model_dump()) for question in asked.questions)
            check_questions([q.question for q in questions], settings.questions, settings.question_characters)
        for id in asked.documents:
            engine.library.get(id)
        if reviews.in_queue >= settings.waiting:
            raise HTTPException(429, f"{settings.waiting} reviews are already waiting; try again later")
        return schemas.ReviewSchema.of(reviews.start(asked.documents, questions))

    @routes.post("/questions", responses=refused(413, 415, 422))
    async def questions_of(file: UploadFile) -> list[schemas.QuestionSchema]:
        """A list of questions from a file, .yaml or .csv, for a review."""
        name = (file.filename or "").lower()
        suffix = next((suffix for suffix in (".csv", ".yaml", ".yml") if name.endswith(suffix)), "")
        if not suffix:
            raise HTTPException(415, "a list of questions must be a .yaml or .csv file")
        data = await file.read(1_000_001)
        if len(data) > 1_000_000 or data.count(b"&") > 1000:  # YAML aliases of aliases grow exponentially
            raise HTTPException(413, "a list of questions may have at most 1,000,000 bytes")
        try:
            found = await run_in_threadpool(parse_questions, data.decode("utf-8-sig"), suffix, "the list")
        except UnicodeDecodeError:
            raise HTTPException(422, "the list is not UTF-8 text") from None
        check_questions([q.question for q in found], settings.questions, settings.question_characters)
        return [schemas.QuestionSchema(**vars(question)) for question in found]

    @routes.get("/{id}", responses=refused(404))
    def review(id: str) -> schemas.ReviewSchema:
        """A review: its progress and the finished rows."""
        return schemas.ReviewSchema.of(reviews.get(id))

    @routes.get("/{id}/events", responses=refused(404), response_class=StreamingResponse)
    def review_events(id: str) -> StreamingResponse:
        """The same as server-sent events, whenever it changes."""
        reviews.get(id)
        return events(lambda: reviews.get(id), 24 * 3600)

    @routes.get("/{id}/review.xlsx", responses=refused(404), response_class=Response)
    def as_xlsx(id: str) -> Response:
        """One row per document, one column per question, sentences as comments, colours by score."""
        return attachment(xlsx_bytes(reviews.get(id).table), XLSX, "review.xlsx")

    @routes.get("/{id}/review.csv", responses=refused(404), response_class=Response)
    def as_csv(id: str) -> Response:
        """The same as CSV."""
        return attachment(csv_bytes(reviews.get(id).table), "text/csv; charset=utf-8", "review.csv")

    return routes


class KeptFile(FileResponse):
    """The file of a document, which may be deleted before it is sent."""

    def __init__(self, library: Library, id: str, **options: Any) -> None:
        super().__init__(library.original(id), **options)
        self.library, self.id = library, id

    async def __call__(self, *given: Any) -> None:
        try:
            await super().__call__(*given)
        except (RuntimeError, OSError):
            self.library.get(self.id)  # raises, if that is why
            raise


def ready_text(engine: Engine, id: str) -> Text:
    entry = engine.library.get(id)
    if entry.state != "ready":
        raise HTTPException(409, entry.error or "the document is not ready: see its state at /v1/documents/{id}")
    return engine.document(id).content


def check_questions(questions: Sequence[str], most: int, longest: int) -> None:
    if len(questions) > most:
        raise HTTPException(413, f"{len(questions)} questions in one request, above the limit of {most}")
    for question in questions:
        if len(question) > longest:
            raise HTTPException(413, f"a question of {len(question):,} characters, above the limit of {longest:,}")
        if not any(letter.isalnum() for letter in question) or any("\ud800" <= c <= "\udfff" for c in question):
            raise HTTPException(422, "a question has no words, or invalid characters")


async def until_read(look: Callable[[], LibraryEntry], seconds: float) -> LibraryEntry:
    """A document when it is read, when that failed, or when there is no room for it."""
    for _ in range(max(1, int(seconds / 0.1))):
        if (entry := look()).state in FINISHED or entry.code in NO_ROOM:
            return entry
        await asyncio.sleep(0.1)
    raise too_late(seconds)


async def in_time(futures: "Sequence[Future[Got]]", seconds: float) -> list[Got]:
    """Wait for all results. 504 if one is late: the work continues, and a later request finds it done."""
    wrapped = [asyncio.wrap_future(future) for future in futures]
    _, late = await asyncio.wait(wrapped, timeout=seconds)
    for future in late:
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody asks for it any more
    if late:
        raise too_late(seconds)
    return [future.result() for future in wrapped]


async def in_pool(pool: Executor, work: Callable[[], Got], seconds: float) -> Got:
    """The result of work that may take long. It never takes the threads that all other requests need."""
    doing = pool.submit(work)
    try:
        [found] = await in_time([doing], seconds)
    finally:
        doing.cancel()  # if it is late and has not begun
    return found


def too_late(seconds: float) -> HTTPException:
    return HTTPException(504, f"not ready within {seconds:g} seconds; the work continues: ask again later")


def attachment(data: bytes, kind: str, name: str) -> Response:
    return Response(data, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})
