"""Find among all documents of the service: a sketch lies beside each of them, and the best ones are asked."""

import threading
import time
from contextlib import suppress
from pathlib import Path

from fastapi import APIRouter

from vcc.documents.finding import Catalogue, Sketch, question_vectors, weights_of
from vcc.documents.index import Index
from vcc.serve import schemas
from vcc.serve.engine import Engine
from vcc.serve.library import LibraryEntry, UnknownDocumentError
from vcc.serve.routes import check_questions, in_pool, in_time, refused

SKETCH = "sketch.safetensors"


class LibraryFinder:
    """The catalogue of the documents that are ready; it is made again when they have changed."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.lock = threading.Lock()
        self.ids: tuple[str, ...] = ()
        self.catalogue: Catalogue | None = None
        engine.after_reading.append(self.keep)

    def keep(self, id: str, index: Index) -> None:
        """Keep the sketch of a document that was just read, unless it has been deleted since."""
        sketch, library = Sketch.of(index, self.engine.asker), self.engine.library
        with library.lock:  # nothing is deleted meanwhile: saving would make the folder again
            library.get(id)
            sketch.save(self._path(id))

    def find(self, question: str, top: int) -> list[tuple[LibraryEntry, float]]:
        """Return the documents that match a question best, best first, each with how well it matches."""
        library, asker = self.engine.library, self.engine.asker
        with self.lock:
            ids = tuple(entry.id for entry in library.all() if entry.state == "ready")
            if ids != self.ids:
                sketches = {id: sketch for id in ids if (sketch := self._sketch(id)) is not None}
                self.ids, self.catalogue = tuple(sketches), Catalogue.of(list(sketches.values())) if sketches else None
            ids, catalogue = self.ids, self.catalogue
        if catalogue is None:
            return []
        with self.engine.turns.urgent():
            [vector] = question_vectors(asker, [question])
        matches = catalogue.find(vector, asker.qa.ids_of(question), top, weights_of(asker))
        known = {entry.id: entry for entry in library.all()}
        return [(known[ids[one.number]], one.score) for one in matches if ids[one.number] in known]

    def _sketch(self, id: str) -> Sketch | None:
        """None if the document was deleted meanwhile. A document of an older service has no sketch yet."""
        try:
            if not self._path(id).exists():
                self.keep(id, self.engine.ready(id).index())
            return Sketch.load(self._path(id))
        except (UnknownDocumentError, FileNotFoundError):
            return None

    def _path(self, id: str) -> Path:
        return self.engine.library.folder / id / SKETCH


def find_routes(engine: Engine, finder: LibraryFinder) -> APIRouter:
    """Which documents match, and what they answer."""
    routes, settings = APIRouter(prefix="/v1/find", tags=["documents"]), engine.settings

    @routes.post("", responses=refused(413, 422, 504))
    async def find(asked: schemas.FindRequest) -> schemas.FoundSchema:
        """Find the documents that match a question best, and ask them. Their answers compete by score."""
        check_questions([asked.question], 1, settings.question_characters)
        matches = await in_pool(engine.workers, lambda: finder.find(asked.question, asked.top), settings.wait_seconds)
        futures = [engine.submit(entry.id, [asked.question])[0] for entry, _ in matches[: asked.ask]]
        end, answers = time.monotonic() + settings.wait_seconds, []
        for (entry, _), future in zip(matches, futures, strict=False):
            with suppress(UnknownDocumentError):  # deleted meanwhile
                [reply] = await in_time([future], end - time.monotonic())
                about = {"document": entry.id, "name": entry.name}
                answers += [schemas.FoundAnswerSchema.model_validate(one.as_dict() | about) for one in reply.answers]
        answers.sort(key=lambda answer: -answer.score)
        return schemas.FoundSchema(
            documents=[
                schemas.MatchSchema(id=entry.id, name=entry.name, match=score)
                for entry, score in matches
                if entry.id in engine.library.entries
            ],
            answers=answers,
        )

    return routes
