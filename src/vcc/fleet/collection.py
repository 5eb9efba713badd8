"""Search a collection for the documents that answer a question best, without reading each again.

The first stage ranks documents twice: by the cosine of the question and the coarsest nodes of their indexes, which
`score="similarity"` also uses, in one memory-mapped vector index (usearch); and by the words shared with the question
(`vcc.fleet.words`). The ranks are added up. In the second stage the best documents are asked like any other.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from vcc.documents.answer import Reply
from vcc.documents.asker import Asker
from vcc.documents.index import coarsest_means, token_ids
from vcc.documents.store import Store
from vcc.documents.text import Text
from vcc.encode import in_windows
from vcc.errors import DocumentError, UsageError
from vcc.files import write_whole
from vcc.fleet.job import Doing, Job
from vcc.fleet.shards import Shards
from vcc.fleet.sources import Item
from vcc.fleet.words import WordTable

if TYPE_CHECKING:
    from usearch.index import Index as Vectors

INSTALL = "pip install 'vcc-transformers[fleet]'"
NODES, WORDS, ABOUT = "nodes.usearch", "words", "collection.json"
EXACT = 300_000  # up to this many nodes, all are compared: fast and exact
HELD_BACK = 60  # of reciprocal rank fusion: one first place must not outweigh two good ones
NODES_A_DOCUMENT = 8  # found per requested document: the best documents have several good ones

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Hit:
    """A candidate document, by its number, with its ranks by nodes and by words."""

    item: Item
    score: float


@dataclass(frozen=True)
class Answered:
    """A document's reply to one question."""

    document: str
    text: Text
    reply: Reply


def collection_folder(store: Store, source: str, job: Job) -> Path:
    """The folder of a source's collection, for the model of a job."""
    if store.folder is None:
        raise UsageError("no folder for the collection: set HOME or XDG_CACHE_HOME")
    place = str(Path(source).resolve()) if "://" not in source else source
    return store.folder.parent / "collections" / hashlib.sha256(f"{place} {job.fingerprint}".encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Collection:
    """A collection in a folder: the list of its documents, and their nodes."""

    folder: Path

    @property
    def exists(self) -> bool:
        return (self.folder / ABOUT).is_file() and (self.folder / WORDS).is_dir()

    def build(self, job: Job, items: Sequence[Item], shards: Shards) -> int:
        """Build it from the indexes of `items`, without failed documents; return the number of nodes."""
        made = {row["document"]: row["place"] for row in shards.rows(items) if row["kind"] is None}
        documents = [(item, Path(job.store) / made[item.name]) for item in items if item.name in made]
        vectors: Vectors | None = None
        total = 0
        for number, (_, path) in enumerate(documents):
            nodes = unit(coarsest_means(path))
            if vectors is None:
                vectors = new_vectors(nodes.shape[1])
            keys = (np.uint64(number) << np.uint64(32)) + np.arange(len(nodes), dtype=np.uint64)
            vectors.add(keys, nodes, threads=1)
            total += len(nodes)
        if vectors is None:
            raise UsageError("no document could be read: there is nothing to search")
        aside = self.folder / f".writing-{NODES}"
        vectors.save(str(aside))
        aside.replace(self.folder / NODES)
        WordTable.of(token_ids(path) for _, path in documents).save(self.folder / WORDS)
        about = {"nodes": total, "documents": [vars(item) for item, _ in documents]}
        write_whole(self.folder / ABOUT, json.dumps(about))
        return total

    @cached_property
    def about(self) -> dict[str, Any]:
        return json.loads((self.folder / ABOUT).read_text(encoding="utf-8"))

    def find(self, asker: Asker, question: str, documents: int) -> list[Hit]:
        """The best-matching documents by nodes and by words, best first."""
        vectors = mapped_vectors(self.folder / NODES)
        wanted = min(documents * NODES_A_DOCUMENT, len(vectors))
        found = vectors.search(question_vector(asker, question), wanted, exact=len(vectors) <= EXACT)
        by_nodes = list(dict.fromkeys(key >> 32 for key in found.keys.tolist()))
        by_words = WordTable.load(self.folder / WORDS).best(asker.qa.ids_of(question), wanted)
        scores: dict[int, float] = {}
        for ranking in (by_nodes, by_words):
            for rank, number in enumerate(ranking):
                scores[number] = scores.get(number, 0.0) + 1 / (HELD_BACK + rank)
        listed = self.about["documents"]
        hits = [Hit(Item(**listed[n]), score) for n, score in scores.items()]
        return sorted(hits, key=lambda hit: (-hit.score, hit.item.name))[:documents]

    def answers_to(self, question: str, asker: Asker, job: Job, top: int, documents: int) -> Iterator[Answered]:
        """The replies of the best documents; one that has changed since indexing is read again."""
        doing = Doing(job)
        for hit in self.find(asker, question, documents):
            try:
                text = doing.read(hit.item.fetch(job.limits), hit.item.file_name)
            except (DocumentError, OSError):
                continue  # gone or broken since
            yield Answered(hit.item.name, text, doing.document(text).ask_all([question], top)[0])


def question_vector(asker: Asker, question: str) -> Floats:
    """The mean of the question's tokens after the layers that run on windows, of length 1: (D,)."""
    qa = asker.qa
    with torch.inference_mode():
        vips = in_windows(qa.host, qa.vips([qa.ids_of(question)]), qa.config.resolved(qa.host.num_layers))
        total = (vips.hidden * vips.counts[..., None].to(vips.hidden.dtype)).sum(1)[0]
    return unit(total.float().cpu().numpy())


def unit(vectors: Floats) -> Floats:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def new_vectors(width: int) -> "Vectors":
    try:
        from usearch.index import Index as Vectors
    except ImportError as error:
        raise UsageError(f"searching a collection needs usearch: {INSTALL}") from error
    return Vectors(ndim=width, metric="cos", dtype="f16")


def mapped_vectors(path: Path) -> "Vectors":
    try:
        from usearch.index import Index as Vectors
    except ImportError as error:
        raise UsageError(f"searching a collection needs usearch: {INSTALL}") from error
    found = Vectors.restore(str(path), view=True)
    if found is None:
        raise UsageError(f"{path} is damaged: run vcc index again")
    return found
