"""One model for all documents of a service: reads what was uploaded, answers questions of several users together."""

import logging
import queue
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from vcc.data.features import tokenize_text
from vcc.documents.answer import Reply
from vcc.documents.document import Document
from vcc.documents.formats.gate import Limits
from vcc.documents.index import Index
from vcc.documents.isolated import ReadingError, end_children, read_isolated
from vcc.documents.layer_view import LayerView
from vcc.documents.review_table import Question, ReviewRow, row_of
from vcc.documents.reviewing import ask_list
from vcc.documents.shipped import load_asker
from vcc.documents.store import model_hash
from vcc.documents.text import Text
from vcc.errors import DocumentError
from vcc.serve.library import FullError, Library, UnknownDocumentError
from vcc.serve.metrics import Metrics
from vcc.serve.settings import ServiceSettings
from vcc.serve.turns import Progress, Turns

log = logging.getLogger("vcc.serve")
REMEMBERED = 20_000  # replies
OPEN_DOCUMENTS = 64  # with their indexes, which are mapped from disk
A_STEP = 8  # questions of a review that are asked together
TOP = 5  # answers found for each question; a request may take fewer


@dataclass(frozen=True)
class PendingQuestion:
    """A question under way."""

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
        self.questions: queue.SimpleQueue[PendingQuestion | None] = queue.SimpleQueue()
        self.readers = ThreadPoolExecutor(settings.readers, "reader")
        self.rereaders = ThreadPoolExecutor(1, "rereader")  # of documents whose indexes made room for others
        self.answering = threading.Thread(target=self._answer_all, name="answering", daemon=True)
        self.answering.start()
        for entry in reversed(library.all()):
            if entry.state in ("waiting", "reading"):  # the service ended before they were read
                self.read(entry.id)

    def close(self) -> None:
        self.questions.put(None)
        for pool in (self.readers, self.rereaders):
            pool.shutdown(wait=False, cancel_futures=True)
        end_children()

    # Reading

    @property
    def in_queue(self) -> int:
        return sum(entry.state in ("waiting", "reading") for entry in self.library.all())

    def read(self, id: str) -> None:
        """Read a document as soon as there is a free reader."""
        self.readers.submit(self._read, id)

    def _read(self, id: str) -> None:
        text = None
        try:
            entry = self.library.change(id, state="reading")
            with self.metrics.stage("reading"):
                data = self.library.original(id).read_bytes()
                text = self._as_text(data, entry.name)
            pages = max((word.page for word in text.words), default=0)
            self._check("pages", pages, self.settings.pages, entry.name)
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
                pages=pages,
                notes=text.notes,
                done=tokens,
                total=tokens,
            )
        except UnknownDocumentError:  # deleted meanwhile
            if text is not None and (index := self._own_index(text.sha256, id)):
                shutil.rmtree(index, ignore_errors=True)
        except FullError as error:
            self._failed(id, str(error), 503)
        except DocumentError as error:
            self._failed(id, error.rule, getattr(error, "code", 422))
        except Exception as error:
            log.error("document %s: reading failed (%s)", id, type(error).__name__)
            self._failed(id, f"could not be read ({type(error).__name__})", 422)

    def _as_text(self, data: bytes, name: str) -> Text:
        limits: Limits = self.settings.limits
        try:
            return read_isolated(data, name, limits, self.settings.reading_seconds, self.settings.reading_memory)
        except ReadingError as error:
            raise LimitError(name, error.rule, 504 if error.kind == "hang" else 422) from error

    def _check(self, what: str, found: int, limit: int, name: str) -> None:
        if found > limit:
            raise LimitError(name, f"has {found:,} {what}, above the service's limit of {limit:,}", 413)

    def _failed(self, id: str, error: str, code: int) -> None:
        try:
            self.library.change(id, state="failed", error=error, code=code)
        except UnknownDocumentError:
            return

    def _tells(self, id: str) -> Progress:
        return lambda done, total: void(self.library.change(id, on_disk=False, done=done, total=total))

    # Documents in memory

    def document(self, id: str) -> Document:
        """A document that was read, with its index."""
        with self.lock:
            if id in self.open:
                self.open.move_to_end(id)
                return self.open[id]
        document = Document(self.library.text(id), self.settings.model, self.library.store)
        self._opened(id, document)
        return document

    def _opened(self, id: str, document: Document) -> None:
        with self.lock:
            self.open[id] = document
            while len(self.open) > OPEN_DOCUMENTS:
                self.open.popitem(last=False)

    def forget(self, id: str) -> None:
        """Delete a document, its index, and all that is remembered of it."""
        with self.lock:
            self.open.pop(id, None)
            for key in [key for key in self.replies if key[0] == id]:
                del self.replies[key]
        self.library.delete(id, self._own_index(self.library.get(id).sha256, id))

    def _own_index(self, sha256: str, id: str) -> Path | None:
        """The place of a document's index, if no other document has the same text."""
        shared = any(entry.sha256 == sha256 for entry in self.library.all() if entry.id != id)
        return self.library.store.place(sha256, self.model_hash) if sha256 and not shared else None

    # Asking

    def submit(self, id: str, questions: Sequence[str]) -> "list[Future[Reply]]":
        """Queue questions: the replies to come. A question that was answered before has its reply already."""
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
        """Ask a document, or let it be read again before that: reading takes long, and others wait for this thread."""
        if self._has_index(id):
            self._reply(id, batch)
        else:
            self.rereaders.submit(self._reply, id, batch, self.ready)

    def _reply(
        self, id: str, batch: Sequence[PendingQuestion], opened: Callable[[str], Document] | None = None
    ) -> None:
        """Ask all questions to one document in a batch; the same question from two users is asked once."""
        wanted = [waiting for waiting in batch if waiting.reply.set_running_or_notify_cancel()]
        questions = list(dict.fromkeys(waiting.question for waiting in wanted))
        self.metrics.batch.observe(len(questions))
        try:
            document = (opened or self.document)(id)
            with self.metrics.stage("asking"), self.turns.urgent():
                replies = dict(zip(questions, document.ask_all(questions, TOP), strict=True))
        except Exception as error:
            for waiting in wanted:
                waiting.reply.set_exception(error)
            return
        with self.lock:
            for question, reply in replies.items():
                self.replies[id, question] = reply
            while len(self.replies) > REMEMBERED:
                self.replies.popitem(last=False)
        for waiting in wanted:
            waiting.reply.set_result(replies[waiting.question])

    def _has_index(self, id: str) -> bool:
        """Whether the index of a document is in the store; for one that was deleted meanwhile, asking raises."""
        try:
            return self.library.store.place(self.library.get(id).sha256, self.model_hash).is_dir()
        except UnknownDocumentError:
            return True

    def ready(self, id: str) -> Document:
        """A document with its index, which is made again where it is gone: patiently, because that takes long."""
        document = self.document(id)
        with self.turns.patient() as progress:
            document.read(progress=progress)
        return document

    def see(self, id: str, question: str) -> LayerView:
        document = self.ready(id)
        with self.metrics.stage("seeing"), self.turns.urgent():
            return document.see(question, TOP)[0]

    def review(self, id: str, questions: Sequence[Question], told: Progress) -> ReviewRow:
        """The row of one document; questions that people wait for go first between its steps."""
        document = self.ready(id)
        replies: list[Reply] = []
        for first in range(0, len(questions), A_STEP):
            with self.metrics.stage("reviewing"), self.turns.patient():
                replies += ask_list(document, questions[first : first + A_STEP], 1)[0]
            told(len(replies), len(questions))
        return row_of(document.content, replies, self.library.get(id).name)


class LimitError(DocumentError):
    """A document that the service does not take, and the HTTP code that says so."""

    def __init__(self, source: str, rule: str, code: int) -> None:
        super().__init__(source, rule)
        self.code = code


def void(_: object) -> None:
    """Nothing: for functions whose result is not wanted."""
