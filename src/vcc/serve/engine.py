"""One model for all documents of a service: it reads uploads and answers questions of several users in batches."""

import logging
import queue
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from vcc.data.features import tokenize_text
from vcc.documents.answer import Reply
from vcc.documents.document import Document
from vcc.documents.formats.gate import Limits
from vcc.documents.index import Index
from vcc.documents.isolated import NoProcessError, ReadingError, end_children, read_isolated
from vcc.documents.layer_view import LayerView
from vcc.documents.review_table import Question, ReviewRow, row_of
from vcc.documents.reviewing import ask_list
from vcc.documents.shipped import load_asker
from vcc.documents.store import model_hash
from vcc.documents.text import Text
from vcc.errors import DocumentError
from vcc.serve.library import FolderError, FullError, Library, UnknownDocumentError
from vcc.serve.metrics import Metrics
from vcc.serve.settings import ServiceSettings
from vcc.serve.turns import Progress, Turns

log = logging.getLogger("vcc.serve")
REMEMBERED = 20_000  # replies
OPEN_DOCUMENTS = 64  # with their indexes, which are mapped from disk
WORKERS = 8  # threads for work that requests wait for; they take turns with the model
A_STEP = 8  # questions of a review that are asked together
TOP = 5  # answers found for each question; a request may take fewer
FAULT = 500  # the code of a document that met a fault of ours; after a restart it is read again
OPTIONS = re.compile(r": --[a-z-]+ raises it, limits= in Python$")  # advice that a client cannot follow
ATTEMPTS = 3  # at a document that ends its reader, or meets a fault of ours, before it is to blame
RETRY, RETRY_MOST = 5.0, 300.0  # seconds until a document is read again that lacked room or processes; they double
Got = TypeVar("Got")


@dataclass(frozen=True)
class PendingQuestion:
    """A pending question."""

    id: str
    question: str
    reply: "Future[Reply]" = field(default_factory=Future)


class Engine:
    """The model, the queue of questions, and the threads that read documents."""

    def __init__(self, settings: ServiceSettings, library: Library, metrics: Metrics) -> None:
        self.settings, self.library, self.metrics = settings, library, metrics
        self.turns = Turns()
        self.asker = load_asker(settings.model)
        self.model_hash = model_hash(self.asker)
        self.open: OrderedDict[str, Document] = OrderedDict()
        self.replies: OrderedDict[tuple[str, str], Reply] = OrderedDict()
        self.after_reading: list[Callable[[str, Index], None]] = []
        self.lock = threading.Lock()
        self.closed = False
        self.attempts: Counter[str] = Counter()  # at documents that met a fault of ours
        self.retries: Counter[str] = Counter()  # of documents that wait for room or processes
        self.questions: queue.SimpleQueue[PendingQuestion | None] = queue.SimpleQueue()
        self.readers = ThreadPoolExecutor(settings.readers, "reader")
        self.rereaders = ThreadPoolExecutor(1, "rereader")  # for documents whose indexes were evicted
        self.loaders = ThreadPoolExecutor(settings.readers, "loader")  # for files of which nothing is kept
        self.workers = ThreadPoolExecutor(WORKERS, "worker")
        self.reading = threading.Semaphore(settings.readers)  # processes that read files: each may need much memory
        self.answering = threading.Thread(target=self._answer_all, name="answering", daemon=True)
        self.answering.start()
        self.sweep()
        for entry in reversed(library.all()):
            if entry.state in ("waiting", "reading") or entry.code == FAULT:  # the service ended before, or failed
                self.read(entry.id)

    def close(self) -> None:
        self.closed = True
        self.questions.put(None)
        for pool in (self.readers, self.rereaders, self.loaders, self.workers):
            pool.shutdown(wait=False, cancel_futures=True)
        end_children()

    # Reading

    @property
    def in_queue(self) -> int:
        return sum(entry.state in ("waiting", "reading") for entry in self.library.all())

    def read(self, id: str) -> None:
        """Read a document as soon as there is a free reader."""
        with suppress(RuntimeError):  # the service ends; the next one reads it
            self.readers.submit(self._read, id)

    def _read(self, id: str) -> None:
        """Read a document. It is only failed for what is in it: without room, it waits and is read again."""
        try:
            with self._in_use(id):
                self._read_and_index(id)
            self._settled(id)
        except UnknownDocumentError:  # deleted meanwhile
            self._settled(id)
        except LimitError as error:
            self._failed(id, error.rule, error.code)
        except DocumentError as error:
            self._failed(id, error.rule, 422)
        except FullError as error:
            self._again(id, str(error), error.code)
        except (FolderError, NoProcessError, OSError) as error:
            log.error("document %s: not read yet (%s)", id, type(error).__name__)
            self._again(id, str(error) if isinstance(error, FolderError) else "the service cannot read it now", 503)
        except Exception as error:
            log.error("document %s: a fault of the service (%s)", id, type(error).__name__, exc_info=error)
            self.attempts[id] += 1
            if self.attempts[id] < ATTEMPTS:
                self._again(id, "a fault of the service; it is read again", FAULT)
            else:
                self._failed(id, f"a fault of the service ({type(error).__name__}); its log has document {id}", FAULT)

    def _read_and_index(self, id: str) -> None:
        entry = self.library.change(id, on_disk=False, state="reading", error="", code=0)
        with self.metrics.stage("reading"):
            data = self.library.original(id).read_bytes()
            text = self.as_text(data, entry.name)
        if len(text.text) > self.settings.tokens:  # a token has at least one character
            tokens = len(tokenize_text(text.text, self.asker.tokenizer).ids)
            self._check("tokens", tokens, self.settings.tokens, entry.name)
        self.library.keep_text(id, text)
        with self.metrics.stage("indexing"), self.turns.patient(self._tells(id)) as progress:
            document = Document(text, self.settings.model, self.library.store)
            index = document.index(progress=progress)
        tokens = index.tokens
        for keep in self.after_reading:
            keep(id, index)
        self._opened(id, document)
        self.library.change(
            id,
            state="ready",
            title=text.title,
            characters=len(text.text),
            tokens=tokens,
            pages=pages_of(text),
            notes=text.notes,
            done=tokens,
            total=tokens,
        )

    def _again(self, id: str, error: str, code: int) -> None:
        """Let a document wait, with the reason, and read it again in some seconds."""
        with suppress(UnknownDocumentError):
            self.library.change(id, on_disk=False, state="waiting", error=error, code=code)
            if not self.closed:
                self.retries[id] += 1
                later = threading.Timer(min(RETRY * 2 ** (self.retries[id] - 1), RETRY_MOST), self.read, [id])
                later.daemon = True
                later.start()

    def as_text(self, data: bytes, name: str) -> Text:
        """A file's text; a `LimitError` says why it cannot be read, in words for a client."""
        try:
            with self.reading:
                text = self._read_isolated(data, name)
        except ReadingError as error:
            raise LimitError(name, error.rule, 504 if error.kind == "hang" else 422) from error
        except DocumentError as error:
            raise LimitError(name, OPTIONS.sub("", error.rule), 422) from error
        self._check("pages", pages_of(text), self.settings.pages, name)
        return text

    def _read_isolated(self, data: bytes, name: str) -> Text:
        """A reader may be killed for lack of memory elsewhere: a file is to blame if it ends several."""
        limits: Limits = self.settings.limits
        for left in reversed(range(ATTEMPTS)):
            try:
                return read_isolated(data, name, limits, self.settings.reading_seconds, self.settings.reading_memory)
            except ReadingError as error:
                if error.kind != "crash" or not left:
                    raise
        raise AssertionError

    def _check(self, what: str, found: int, limit: int, name: str) -> None:
        if found > limit:
            raise LimitError(name, f"has {found:,} {what}, above the service's limit of {limit:,}", 413)

    def _settled(self, id: str) -> None:
        self.attempts.pop(id, None)
        self.retries.pop(id, None)

    def _failed(self, id: str, error: str, code: int) -> None:
        self._settled(id)
        try:
            self.library.change(id, state="failed", error=error, code=code)
        except UnknownDocumentError:
            return
        except OSError:  # it will be read, and fail, again after a restart
            with suppress(UnknownDocumentError):
                self.library.change(id, on_disk=False, state="failed", error=error, code=code)

    def _tells(self, id: str) -> Progress:
        """Reports progress, and stops the work on a document that was deleted."""
        return lambda done, total: void(self.library.change(id, on_disk=False, done=done, total=total))

    @contextmanager
    def _in_use(self, id: str) -> Iterator[None]:
        """Work on a document, which may make its index. If the document was deleted meanwhile, nothing of it stays."""
        try:
            yield
        finally:
            if id not in self.library.entries:
                self._close(id)
                with suppress(OSError):  # tidying tries again
                    self.sweep()

    # Documents in memory

    def document(self, id: str) -> Document:
        """A document with its index."""
        with self.lock:
            if id in self.open:
                self.open.move_to_end(id)
                return self.open[id]
        document = Document(self.library.text(id), self.settings.model, self.library.store)
        self._opened(id, document)
        return document

    def _opened(self, id: str, document: Document) -> None:
        with self.lock:
            self.library.get(id)  # or it was deleted, and must not stay in memory
            self.open[id] = document
            while len(self.open) > OPEN_DOCUMENTS:
                self.open.popitem(last=False)

    def _close(self, id: str) -> None:
        with self.lock:
            self.open.pop(id, None)
            for key in [key for key in self.replies if key[0] == id]:
                del self.replies[key]

    def forget(self, id: str) -> None:
        """Delete a document, its index, and all that is remembered of it; work under way on it cleans up at its end."""
        self.library.delete(id)
        self._close(id)
        self.sweep()

    def sweep(self) -> None:
        """Remove the indexes of texts that no document has, also those that other models have made."""
        place = self.library.store.place
        self.library.store.keep_only({place(e.sha256, self.model_hash) for e in self.library.all() if e.sha256})

    # Asking

    def submit(self, id: str, questions: Sequence[str]) -> "list[Future[Reply]]":
        """Queue questions and return futures of their replies; cached replies are ready immediately."""
        futures = []
        for question in questions:
            with self.lock:
                known = self.replies.get((id, question))
            waiting = PendingQuestion(id, question)
            if known is not None:
                waiting.reply.set_result(known)
            else:
                self.questions.put(waiting)
            futures.append(waiting.reply)
        return futures

    def _answer_all(self) -> None:
        while (first := self.questions.get()) is not None:
            batch = [first]
            while not self.questions.empty() and len(batch) < 64:
                item = self.questions.get()
                if item is None:
                    return
                batch.append(item)
            for id in dict.fromkeys(waiting.id for waiting in batch):
                self._answer(id, [waiting for waiting in batch if waiting.id == id])

    def _answer(self, id: str, batch: Sequence[PendingQuestion]) -> None:
        """Ask a document. If its index is gone, another thread reads it again first: this one must not block."""
        if self._has_index(id):
            self._reply(id, batch)
        else:
            self.rereaders.submit(self._reply, id, batch, self.ready)

    def _reply(
        self, id: str, batch: Sequence[PendingQuestion], opened: Callable[[str], Document] | None = None
    ) -> None:
        """Ask one document all questions in a batch; the same question of two users is asked once."""
        wanted = [waiting for waiting in batch if waiting.reply.set_running_or_notify_cancel()]
        questions = list(dict.fromkeys(waiting.question for waiting in wanted))
        self.metrics.batch.observe(len(questions))
        try:
            with self._in_use(id):
                document = (opened or self.document)(id)
                with self.metrics.stage("asking"), self.turns.urgent():
                    replies = dict(zip(questions, document.ask_all(questions, TOP), strict=True))
        except Exception as error:
            for waiting in wanted:
                waiting.reply.set_exception(self._or_deleted(id, error))
            return
        with self.lock:
            for question, reply in replies.items() if id in self.library.entries else ():
                self.replies[id, question] = reply
            while len(self.replies) > REMEMBERED:
                self.replies.popitem(last=False)
        for waiting in wanted:
            waiting.reply.set_result(replies[waiting.question])

    def _or_deleted(self, id: str, error: Exception) -> Exception:
        """Why work failed: that the document was deleted meanwhile explains every other error."""
        try:
            self.library.get(id)
        except UnknownDocumentError as unknown:
            return unknown
        return error

    def _has_index(self, id: str) -> bool:
        """Whether the index of a document is stored. True for a deleted document: asking it raises."""
        try:
            return self.library.store.place(self.library.get(id).sha256, self.model_hash).is_dir()
        except UnknownDocumentError:
            return True

    def ready(self, id: str) -> Document:
        """A document with its index, which is made again if it is gone, at low priority."""
        document = self.document(id)
        with self.turns.patient(lambda done, total: void(self.library.get(id))) as progress:
            document.read(progress=progress)
        return document

    def use(self, id: str, stage: str, work: Callable[[Document], Got]) -> Got:
        """Do some work on a document that a person waits for."""
        try:
            with self._in_use(id):
                document = self.ready(id)
                with self.metrics.stage(stage), self.turns.urgent():
                    return work(document)
        except Exception as error:
            raise self._or_deleted(id, error) from error

    def see(self, id: str, question: str) -> LayerView:
        return self.use(id, "seeing", lambda document: document.see(question, TOP)[0])

    def review(self, id: str, questions: Sequence[Question], told: Progress) -> ReviewRow:
        """The row of one document; questions that people wait for go first between its steps."""
        try:
            with self._in_use(id):
                document = self.ready(id)
                replies: list[Reply] = []
                for first in range(0, len(questions), A_STEP):
                    name = self.library.get(id).name  # or it was deleted
                    with self.metrics.stage("reviewing"), self.turns.patient():
                        replies += ask_list(document, questions[first : first + A_STEP])[0]
                    told(len(replies), len(questions))
                return row_of(document.content, replies, name)
        except Exception as error:
            raise self._or_deleted(id, error) from error


class LimitError(DocumentError):
    """A document that cannot be read, or is above the service's limits, with its HTTP status code."""

    def __init__(self, source: str, rule: str, code: int) -> None:
        super().__init__(source, rule)
        self.code = code


def pages_of(text: Text) -> int:
    return max((word.page for word in text.words), default=0)


def void(_: object) -> None:
    """Discard a result."""
