"""The tools of the Model Context Protocol, by which another program's model asks documents and checks what it says.

`vcc mcp FOLDER...` serves them over standard input and output for the files below some folders, and `vcc serve` at
/mcp for its own documents. A call hands over the answer, its sentence, page and boxes instead of the document.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import TypedDict

from vcc.documents.answer import Reply, place_at
from vcc.documents.question_list import CLAUSE_QUESTIONS
from vcc.documents.review_table import Question, named, row_of
from vcc.documents.reviewing import most_answers, reviewed
from vcc.documents.text import Text
from vcc.errors import Failure, UsageError
from vcc.integrations.shelf import Shelf
from vcc.printable import printable
from vcc.qa.model import Progress
from vcc.version import __version__

if TYPE_CHECKING:
    from mcp.server import MCPServer

INSTALL = "pip install 'vcc-transformers[mcp]'"
QUESTION_CHARACTERS, QUESTIONS, REVIEWED = 2_000, 100, 50
MOST_ANSWERS = 20
QUOTED = 20_000  # characters of one quote
LISTED = 200  # parts of a document, names of a folder
INSTRUCTIONS = (
    "Answers come from the documents word for word, each with its probability of being right (score), page and "
    "sentence. Ask short, complete questions. No answer means that the document does not seem to hold one: say so. "
    "Documents: "
)
Got = TypeVar("Got")


class BoxFields(TypedDict):
    """A rectangle on a page: fractions of the page from its top left corner."""

    page: int
    x0: float
    y0: float
    x1: float
    y1: float


class AnswerFields(TypedDict):
    """An answer: the nine names that every answer of VCC has."""

    text: str
    start: int
    end: int
    score: float
    place: str
    page: int | None
    sentence: str
    sure: bool
    boxes: list[BoxFields]


class PartFields(TypedDict):
    label: str
    start: int
    end: int


class ReadResult(TypedDict):
    path: str
    title: str
    characters: int
    tokens: int
    parts: list[PartFields]
    notes: list[str]
    documents: list[str]  # of a folder


class AskResult(TypedDict):
    path: str
    question: str
    answers: list[AnswerFields]


class ReviewedDocument(TypedDict):
    path: str
    cells: list[list[AnswerFields]]  # a list of answers for each question
    notes: list[str]
    error: str


class ReviewResult(TypedDict):
    questions: list[str]
    documents: list[ReviewedDocument]


class FoundDocument(TypedDict):
    path: str
    relevance: float
    answers: list[AnswerFields]


class FindResult(TypedDict):
    question: str
    documents: list[FoundDocument]
    left_out: list[str]


class FilledFields(TypedDict):
    path: str  # parties[0].name
    value: Any  # null below the threshold
    evidence: AnswerFields | None


class ExtractResult(TypedDict):
    path: str
    values: dict[str, Any]
    missing: list[str]
    fields: list[FilledFields]


class VerdictFields(TypedDict):
    sentence: str
    verdict: str  # supported, contradicted or not found
    by: str
    reason: str
    passage: AnswerFields | None
    also: list[AnswerFields]  # further passages about it


class VerifyResult(TypedDict):
    path: str
    verdicts: list[VerdictFields]
    head: bool  # False: only quotes are checked


class QuoteResult(TypedDict):
    path: str
    text: str
    start: int
    end: int
    place: str
    more: bool  # whether the document goes on after `end`


def make_server(shelf: Shelf, where: str, seconds: float = 600.0, at_once: int = 1) -> "MCPServer":
    """The server of a shelf; `where` tells a model which documents there are.

    A call takes at most `seconds`; more than `at_once` of them wait for each other.
    """
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver import Context
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp_types import ToolAnnotations
    except ImportError as error:
        raise UsageError(f"MCP needs {error.name}: {INSTALL}") from error

    server = MCPServer("vcc", instructions=INSTRUCTIONS + where, version=__version__, log_level="WARNING")
    worker = ThreadPoolExecutor(at_once, "mcp")
    safe = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

    async def run(context: Context, work: Callable[[Progress], Got]) -> Got:
        """Do the work in its thread, report its progress, and turn what went wrong into a tool error."""
        loop, waiting = asyncio.get_running_loop(), True

        def progress(done: int, total: int) -> None:
            if waiting:
                asyncio.run_coroutine_threadsafe(report(done, total), loop)

        async def report(done: int, total: int) -> None:
            with contextlib.suppress(Exception):  # the client may be gone
                await context.report_progress(done, total)

        future = loop.run_in_executor(worker, work, progress)
        try:
            return await asyncio.wait_for(asyncio.shield(future), seconds)
        except TimeoutError:
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            words = f"not ready within {seconds:g} seconds; the work goes on: call again later"
            raise ToolError(words) from None
        except (UsageError, Failure) as error:
            raise ToolError(printable(str(error))[:1000]) from error
        finally:
            waiting = False

    async def read(path: str, context: Context) -> ReadResult:
        """Read a document: its length, its pages or headings, and what could not be read. For a folder, list its
        documents; "" lists all.

        Args:
            path: a file (PDF, DOCX, EPUB, HTML, Markdown, text) or a folder
        """
        return await run(context, lambda progress: read_one(shelf, path, progress))

    async def ask(path: str, question: str, context: Context, top: int = 3) -> AskResult:
        """Answer a question from one document, word for word, with page, sentence and probability of being right.

        Args:
            path: the document
            question: one short, complete question
            top: the number of answers, at most
        """
        return await run(context, lambda progress: ask_one(shelf, path, question, top, progress))

    async def review(paths: list[str], context: Context, questions: list[str] | None = None) -> ReviewResult:
        """Ask several documents the same questions; without questions, for the 41 clauses of a contract review.

        Args:
            paths: the documents
            questions: short, complete questions
        """
        return await run(context, lambda progress: review_all(shelf, paths, questions, progress))

    async def find(question: str, context: Context, folder: str = "", top: int = 5) -> FindResult:
        """Find the documents of a folder that answer a question best, with their answers.

        Args:
            question: one short, complete question
            folder: where to look; "" looks everywhere
            top: the number of documents, at most
        """
        return await run(context, lambda progress: find_best(shelf, question, folder, top, progress))

    async def quote(path: str, context: Context, page: int | None = None, start: int = 0, end: int = 0) -> QuoteResult:
        """Quote a page, or the characters from start to end, word for word; 20,000 characters at most.

        Args:
            path: the document
            page: a page number, from 1; only for documents with pages
            start: the first character, as answers count them
            end: the last character + 1; 0 is as far as a quote may reach
        """
        return await run(context, lambda progress: quote_one(shelf, path, page, start, end))

    async def extract(path: str, schema: dict[str, Any], context: Context) -> ExtractResult:
        """Fill the fields of a JSON Schema from a document: dates, sums, durations, numbers, names, each with its
        evidence. A field that the document does not fill is null or absent.

        Args:
            path: the document
            schema: a JSON Schema of an object; names and descriptions of its properties say what to look for
        """
        return await run(context, lambda progress: extract_one(shelf, path, schema, progress))

    async def verify(path: str, text: str, context: Context) -> VerifyResult:
        """Check sentences against a document before you state them: each is supported, contradicted or not found, with
        the passage that decides.

        Args:
            path: the document
            text: one or more sentences
        """
        return await run(context, lambda progress: verify_one(shelf, path, text, progress))

    for tool in (read, ask, review, find, quote, extract, verify):
        server.add_tool(tool, annotations=safe)
    return server


def read_one(shelf: Shelf, path: str, progress: Progress) -> ReadResult:
    if is_folder(shelf, path):
        names = shelf.names(path)
        notes = [f"{len(names) - LISTED:,} more documents are not listed"] if len(names) > LISTED else []
        return ReadResult(path=path, title="", characters=0, tokens=0, parts=[], notes=notes, documents=names[:LISTED])
    text = shelf.text(path)
    parts = [PartFields(label=part.label, start=part.start, end=part.end) for part in text.parts]
    notes = list(text.notes)
    if len(parts) > LISTED:
        notes.append(f"{len(parts) - LISTED:,} more parts are not listed")
    return ReadResult(
        path=path,
        title=text.title,
        characters=len(text.text),
        tokens=shelf.tokens(path, progress),
        parts=parts[:LISTED],
        notes=notes,
        documents=[],
    )


def is_folder(shelf: Shelf, path: str) -> bool:
    try:
        shelf.names(path)
    except UsageError:
        return False
    return True


def ask_one(shelf: Shelf, path: str, question: str, top: int, progress: Progress) -> AskResult:
    check_questions([question])
    check_top(top)
    (reply,) = shelf.replies(path, [question], top, progress)
    return AskResult(path=path, question=question, answers=answers_of(reply, top))


def review_all(shelf: Shelf, paths: Sequence[str], questions: Sequence[str] | None, progress: Progress) -> ReviewResult:
    if not 1 <= len(paths) <= REVIEWED:
        raise UsageError(f"{len(paths)} documents: a review takes 1 to {REVIEWED}; split it")
    asked = CLAUSE_QUESTIONS if questions is None else tuple(Question(question) for question in questions)
    check_questions([question.question for question in asked])
    rows = []
    for number, path in enumerate(paths):
        progress(number * len(asked), len(paths) * len(asked))
        row = ReviewedDocument(path=path, cells=[], notes=[], error="")
        try:
            wanted, text = [question.question for question in asked], shelf.text(path)
            replies = shelf.replies(path, wanted, most_answers(wanted, None), lambda done, total: None)
            found = row_of(text, named([reviewed(text, reply, None) for reply in replies], asked), path)
            row["cells"] = [[fields_of(answer.as_dict()) for answer in cell] for cell in found.cells]
            row["notes"] = list(found.notes)
        except (UsageError, Failure) as error:  # one bad file is a row of its own
            row["error"] = printable(str(error))[:1000]
        rows.append(row)
    progress(len(paths) * len(asked), len(paths) * len(asked))
    return ReviewResult(questions=[question.heading for question in asked], documents=rows)


def find_best(shelf: Shelf, question: str, folder: str, top: int, progress: Progress) -> FindResult:
    check_questions([question])
    check_top(top)
    found = shelf.find(question, folder, top, progress)
    if not found.matches:
        raise UsageError("there is no document that can be read: name another folder")
    documents, left_out = [], list(found.left_out)
    for name, score in found.matches:
        try:
            (reply,) = shelf.replies(name, [question], 1, lambda done, total: None)
        except (UsageError, Failure) as error:  # it has changed, or was deleted, since it was found
            left_out.append(f"{name}: {error}")
        else:
            documents.append(FoundDocument(path=name, relevance=float(score), answers=answers_of(reply, 1)))
    left_out = [printable(words)[:300] for words in left_out[:LISTED]]
    return FindResult(question=question, documents=documents, left_out=left_out)


def extract_one(shelf: Shelf, path: str, schema: dict[str, Any], progress: Progress) -> ExtractResult:
    from vcc.documents.extract.schema import form_schema

    form = form_schema(schema)
    filled = shelf.use(path, lambda document: document.extract(form), progress)
    return ExtractResult(path=path, **filled.as_dict())  # type: ignore[typeddict-item]


def verify_one(shelf: Shelf, path: str, text: str, progress: Progress) -> VerifyResult:
    from vcc.documents.verify import has_head, sentences_of

    sentences_of(text)  # what cannot be checked is rejected before the document is read
    verdicts, head = shelf.use(path, lambda document: (document.verify(text), has_head(document)), progress)
    found = [VerdictFields(**one.as_dict()) for one in verdicts]  # type: ignore[typeddict-item]
    return VerifyResult(path=path, verdicts=found, head=head)


def quote_one(shelf: Shelf, path: str, page: int | None, start: int, end: int) -> QuoteResult:
    text = shelf.text(path)
    if page is not None:
        if start or end:
            raise UsageError("give page, or start and end, not both")
        start, end = page_span(text, page)
    length = len(text.text)
    end = min(end or length, length)
    if not 0 <= start < end:
        raise UsageError(f"span {start}..{end} must be non-empty and lie in 0..{length}")
    stop = min(end, start + QUOTED)
    place = place_at(text, start)
    return QuoteResult(path=path, text=text.text[start:stop], start=start, end=stop, place=place, more=stop < length)


def page_span(text: Text, page: int) -> tuple[int, int]:
    label = f"page {page}"
    for part in text.parts:
        if part.label == label or part.label.endswith(f" · {label}"):
            return part.start, part.end
    pages = [part.label for part in text.parts if "page " in part.label]
    known = f"its pages are {pages[0]} to {pages[-1]}" if pages else "it has no pages: give start and end"
    raise UsageError(f"page {page} is not in {printable(text.title)}: {known}")


def answers_of(reply: Reply, top: int) -> list[AnswerFields]:
    return [fields_of(values) for values in reply.as_dict()["answers"][:top]]


def fields_of(values: dict[str, Any]) -> AnswerFields:
    return AnswerFields(**values)  # type: ignore[typeddict-item]


def check_questions(questions: Sequence[str]) -> None:
    if not 1 <= len(questions) <= QUESTIONS:
        raise UsageError(f"{len(questions)} questions: ask 1 to {QUESTIONS} in a call")
    for question in questions:
        if len(question) > QUESTION_CHARACTERS:
            raise UsageError(f"a question of {len(question):,} characters: the limit is {QUESTION_CHARACTERS:,}")
        if not any(letter.isalnum() for letter in question) or any("\ud800" <= one <= "\udfff" for one in question):
            raise UsageError("a question holds no word, or characters that are none")


def check_top(top: int) -> None:
    if not 1 <= top <= MOST_ANSWERS:
        raise UsageError(f"top is {top}: it must lie in 1..{MOST_ANSWERS}")
