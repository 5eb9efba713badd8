"""Reviews as jobs: many documents, a list of questions, one table. They run sequentially and report their progress."""

import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

from vcc.documents.review_table import Question, ReviewRow, ReviewTable
from vcc.serve.engine import Engine
from vcc.serve.library import UnknownDocumentError
from vcc.serve.turns import Progress

log = logging.getLogger("vcc.serve")
KEPT = 100  # finished reviews that can be fetched


@dataclass(frozen=True)
class Review:
    """One review and its progress."""

    id: str
    documents: tuple[str, ...]
    questions: tuple[Question, ...]
    started: float
    state: Literal["waiting", "running", "ready", "failed"] = "waiting"
    done: int = 0  # questions
    error: str = ""
    rows: tuple[ReviewRow, ...] = ()
    row_documents: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return len(self.documents) * len(self.questions)

    @property
    def table(self) -> ReviewTable:
        return ReviewTable(self.questions, self.rows)


class Reviews:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.lock = threading.Lock()
        self.all: OrderedDict[str, Review] = OrderedDict()
        self.pool = ThreadPoolExecutor(1, "reviewer")

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)

    @property
    def in_queue(self) -> int:
        return sum(review.state in ("waiting", "running") for review in self.all.values())

    def start(self, documents: Sequence[str], questions: Sequence[Question]) -> Review:
        review = Review(secrets.token_hex(16), tuple(documents), tuple(questions), time.time())
        with self.lock:
            self.all[review.id] = review
            finished = [id for id, other in self.all.items() if other.state in ("ready", "failed")]
            for id in finished[: max(len(self.all) - KEPT, 0)]:
                del self.all[id]
        self.pool.submit(self._run, review.id)
        return review

    def get(self, id: str) -> Review:
        try:
            return self.all[id]
        except KeyError:
            raise UnknownDocumentError("no such review; only the latest are kept") from None

    def forget(self, document: str) -> None:
        """Remove what reviews say of a document that was deleted, also of a review that is running."""
        with self.lock:
            for id, review in self.all.items():
                if document in review.row_documents:
                    own = zip(review.row_documents, review.rows, strict=True)
                    rows = tuple(deleted(document) if other == document else row for other, row in own)
                    self.all[id] = replace(review, rows=rows)

    def _change(self, id: str, **values: Any) -> None:
        with self.lock:
            self.all[id] = replace(self.all[id], **values)

    def _add(self, id: str, document: str, row: ReviewRow, done: int) -> None:
        with self.lock:
            review = self.all[id]
            row = row if document in self.engine.library.entries else deleted(document)
            documents = (*review.row_documents, document)
            self.all[id] = replace(review, rows=(*review.rows, row), row_documents=documents, done=done)

    def _run(self, id: str) -> None:
        self._change(id, state="running")
        review = self.all[id]
        try:
            for number, document in enumerate(review.documents):
                before = number * len(review.questions)

                def progress(done: int, total: int, before: int = before) -> None:
                    self._change(id, done=before + done)

                row = self._row(document, review.questions, progress)
                self._add(id, document, row, before + len(review.questions))
            self._change(id, state="ready")
        except Exception as error:
            log.error("review %s failed (%s)", id, type(error).__name__, exc_info=error)
            self._change(id, state="failed", error=f"the review failed ({type(error).__name__})")

    def _row(self, document: str, questions: Sequence[Question], progress: Progress) -> ReviewRow:
        try:
            entry = self.engine.library.get(document)
            if entry.state != "ready":
                return ReviewRow(entry.name, error=entry.error or "is not read yet")
            return self.engine.review(document, questions, progress)
        except UnknownDocumentError:
            return deleted(document)


def deleted(document: str) -> ReviewRow:
    return ReviewRow(document, error="was deleted")
