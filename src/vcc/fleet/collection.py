"""A folder that finds the right documents: a catalogue of all of them is searched, and the best ones are asked.

When `vcc index` reads a document it also keeps a sketch of it, named by the hashes of its text and its model. The
catalogue is put together from the sketches of the documents that are there now, in a folder of its own, and comes into
use when `collection.json` names it. So a run that is killed leaves the catalogue of the run before, or none.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vcc.documents.answer import Answer, Reply
from vcc.documents.asker import Asker
from vcc.documents.finding import Catalogue, Sketch, question_vectors, weights_of
from vcc.documents.store import Store
from vcc.documents.text import Text
from vcc.errors import DocumentError, UsageError
from vcc.files import one_at_a_time, write_whole
from vcc.fleet.job import Doing, Job, sketch_path
from vcc.fleet.run import Executor, Report, Tally, run, work_folder
from vcc.fleet.shards import Shards
from vcc.fleet.sources import Item

DAMAGED = (OSError, EOFError, ValueError, KeyError)
ABOUT, CATALOGUE, LOCK = "collection.json", "catalogue-", "lock"


@dataclass(frozen=True)
class Hit:
    """A document that may answer, and how well it matches the question."""

    item: Item
    score: float


@dataclass(frozen=True)
class Answered:
    """A document's answers to one question."""

    document: str
    text: Text
    reply: Reply
    match: float  # how well the document matches the question


def collect(
    job: Job,
    source: str,
    items: Sequence[Item],
    store: Store,
    executor: Executor = Executor(),  # noqa: B008  a frozen value
    retry: bool = False,
    report: Report = lambda tally: None,
) -> "tuple[Collection, Tally]":
    """Read what is new among the documents of a source, and catalogue all of them. If no file came, changed or went,
    the catalogue that is there stays."""
    collection = Collection(collection_folder(store, source, job))
    if not retry and collection.is_of(items):
        return collection, Tally(0, 0, skipped=len(items))
    collection.folder.mkdir(parents=True, exist_ok=True)
    tally = run(job, items, collection.table, executor, retry, report)
    collection.build(job, items, Shards(work_folder(collection.table)))
    return collection, tally


def collection_folder(store: Store, source: str, job: Job) -> Path:
    """Return where the collection of a source is kept, for the model of a job."""
    if store.folder is None:
        raise UsageError("no folder for the collection: set HOME or XDG_CACHE_HOME")
    place = str(Path(source).resolve()) if "://" not in source else source
    return store.folder.parent / "collections" / hashlib.sha256(f"{place} {job.fingerprint}".encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Collection:
    """The folder of a collection: the list of its documents, and their catalogue."""

    folder: Path

    @property
    def exists(self) -> bool:
        return (self.folder / ABOUT).is_file()

    @property
    def table(self) -> Path:
        """What reading gave, a row per document."""
        return self.folder / "documents.parquet"

    @property
    def failed(self) -> list[str]:
        """The documents that could not be read, and why."""
        return self.about["failed"]

    def is_of(self, items: Sequence[Item]) -> bool:
        """Whether it was made of these documents, as they are now, and no run was killed or damaged it since."""
        if not self.exists or self.about.get("listed") != digest(items):
            return False
        return len(list(self.folder.glob(f"{CATALOGUE}*"))) == 1 and self._is_whole(self.about)

    def build(self, job: Job, items: Sequence[Item], shards: Shards) -> int:
        """Put the catalogue together from the sketches of `items`; return its bytes. Documents that failed are not in
        it. If nothing has changed, the one that is there stays."""
        with one_at_a_time(self.folder / LOCK):
            self._build(job, items, shards)
        return self.catalogue.size

    def _build(self, job: Job, items: Sequence[Item], shards: Shards) -> None:
        rows = shards.rows(items)
        made = {row["document"]: row["place"] for row in rows if row["kind"] is None}
        documents = [(item, made[item.name]) for item in items if item.name in made]
        if not documents:
            raise UsageError("no document could be read: there is nothing to search")
        about: dict[str, Any] = {
            "documents": [vars(item) for item, _ in documents],
            "places": [place for _, place in documents],
            "failed": [f"{row['document']}: {row['error']}" for row in rows if row["kind"] is not None],
            "listed": digest(items),
        }
        before = self.about if self.exists else {}
        if before.get("places") == about["places"] and self._is_whole(before):
            about["catalogue"] = before["catalogue"]
        else:
            self._sketch_again(job, documents)
            folder = Path(tempfile.mkdtemp(prefix=CATALOGUE, dir=self.folder))
            try:
                Catalogue.write(folder, lambda: (Sketch.load(sketch_path(job, place)) for _, place in documents))
            except BaseException:  # Ctrl-C too
                shutil.rmtree(folder, ignore_errors=True)
                raise
            about["catalogue"] = folder.name
        write_whole(self.folder / ABOUT, json.dumps(about))
        vars(self).pop("about", None)
        vars(self).pop("catalogue", None)
        remove_others(self.folder, about["catalogue"])

    def _sketch_again(self, job: Job, documents: Sequence[tuple[Item, str]]) -> None:
        """Sketches that were removed since."""
        gone = [item for item, place in documents if not sketch_path(job, place).exists()]
        doing = Doing(job) if gone else None
        for item in gone:
            assert doing is not None
            doing(item)

    def _is_whole(self, about: dict[str, Any]) -> bool:
        try:
            return len(Catalogue.load(self.folder / about["catalogue"])) == len(about["documents"])
        except DAMAGED:
            return False

    @cached_property
    def about(self) -> dict[str, Any]:
        return json.loads((self.folder / ABOUT).read_text(encoding="utf-8"))

    @cached_property
    def catalogue(self) -> Catalogue:
        try:
            return Catalogue.load(self.folder / self.about["catalogue"])
        except DAMAGED as error:
            raise UsageError(f"{self.folder} is damaged ({error}): run vcc index again") from error

    def find(self, asker: Asker, question: str, documents: int) -> list[Hit]:
        """Return the documents that match a question best, best first."""
        vector, ids = question_vectors(asker, [question])[0], asker.qa.ids_of(question)
        found, listed = self.catalogue.find(vector, ids, documents, weights_of(asker)), self.about["documents"]
        return [Hit(Item(**listed[match.number]), match.score) for match in found]

    def answers_to(
        self, question: str, asker: Asker, job: Job, top: int, documents: int, threshold: float | None = None
    ) -> Iterator[Answered]:
        """Ask the best documents; one that has changed since it was indexed is read again."""
        doing = Doing(job)
        for hit in self.find(asker, question, documents):
            try:
                text = doing.read(hit.item.fetch(job.limits), hit.item.file_name)
            except (DocumentError, OSError):
                continue  # gone, or broken by now
            [reply] = doing.document(text).ask_all([question], top, threshold)
            yield Answered(hit.item.name, text, reply, hit.score)


def digest(items: Sequence[Item]) -> str:
    """Return a hash of the names, places and stamps of documents."""
    return hashlib.sha256(json.dumps([vars(item) for item in items]).encode()).hexdigest()


def remove_others(folder: Path, kept: str) -> None:
    """Remove the catalogues of runs before, also of one that was killed."""
    for left in folder.glob(f"{CATALOGUE}*"):
        if left.name != kept:
            shutil.rmtree(left, ignore_errors=True)


def best_answers(found: Sequence[Answered], top: int) -> list[tuple[Answer, Answered]]:
    """Return the best answers of all documents: their scores are probabilities, so they compare across documents."""
    every = [(answer, one) for one in found for answer in one.reply.answers]
    every.sort(key=lambda pair: (-pair[0].score, -pair[1].match, pair[1].document, pair[0].start))
    return every[:top]
