"""Deleting deletes: whatever is under way, nothing that can be read back stays, on disk or in memory."""

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.documents import small_model
from tests.serve.running import until
from vcc.documents import document as documents
from vcc.documents import index as indexes
from vcc.documents.formats.gate import Limits
from vcc.documents.formats.read import read_data
from vcc.documents.isolated import ReadingError
from vcc.documents.review_table import Question
from vcc.errors import DocumentError
from vcc.serve import engine as module
from vcc.serve.engine import Engine
from vcc.serve.library import Library, UnknownDocumentError
from vcc.serve.metrics import Metrics
from vcc.serve.reviews import Reviews
from vcc.serve.settings import ServiceSettings


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model.saved(tmp_path_factory.mktemp("model"))


@pytest.fixture
def engine(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(module, "RETRY", 0.01)
    settings = ServiceSettings(tmp_path, model=model, readers=2)
    one = Engine(settings, Library(tmp_path, settings.kept_bytes, settings.kept_hours), Metrics())
    yield one
    one.close()


def upload(engine: Engine, words: int, seed: int = 0) -> str:
    id = engine.library.add(small_model.text(words, seed).encode(), "a.txt").id
    engine.read(id)
    return id


def ready(engine: Engine, words: int, seed: int = 0) -> str:
    id = upload(engine, words, seed)
    until(lambda: engine.library.get(id).state == "ready")
    return id


def files(engine: Engine) -> list[Path]:
    return [path for path in engine.settings.folder.rglob("*") if path.is_file()]


def test_documents_deleted_at_any_moment_leave_nothing(engine: Engine) -> None:
    rng, text = random.Random(0), [200, 400, 2000]

    def one(number: int) -> None:
        id = upload(engine, text[number % 3], number % 7)  # some have the same text
        time.sleep(rng.random() * 0.3)
        engine.submit(id, ["w5?"])
        engine.forget(id)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(24)))
    until(lambda: not engine.attempts and engine.readers._work_queue.empty())
    until(lambda: not files(engine))
    assert not engine.open and not engine.replies and engine.library.all() == []


def test_an_index_that_another_model_made_goes_with_its_document(engine: Engine) -> None:
    id = ready(engine, 100)
    (made,) = (engine.settings.folder / "indexes").iterdir()
    made.rename(made.with_name("0" * 32))  # as after a start with another model
    engine.forget(id)
    assert files(engine) == []


def test_the_index_of_a_text_that_two_documents_have_stays_with_the_other(engine: Engine) -> None:
    first, second = ready(engine, 100), ready(engine, 100)
    engine.forget(first)
    assert len(list((engine.settings.folder / "indexes").iterdir())) == 1
    engine.forget(second)
    assert files(engine) == []


def test_reviews_forget_what_is_deleted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    reviews, ids = Reviews(engine), [ready(engine, 100, seed) for seed in (0, 1)]
    questions = [Question(f"w{n} w{n + 1} ?") for n in range(16)]
    finished = reviews.start(ids, questions).id
    until(lambda: reviews.get(finished).state == "ready")
    assert any(cell for cell in reviews.get(finished).rows[0].cells)

    def delete(document: Any, some: Any, ask: Callable[..., Any] = module.ask_list) -> Any:
        """In the middle of the second review."""
        found = ask(document, some)
        if ids[0] in engine.library.entries:
            engine.forget(ids[0])
            reviews.forget(ids[0])
        return found

    monkeypatch.setattr(module, "ask_list", delete)
    running = reviews.start(ids, questions).id
    until(lambda: reviews.get(running).state == "ready")
    for id in (finished, running):
        first, second = reviews.get(id).rows
        assert (first.error, first.cells) == ("was deleted", ()) and second.cells and not second.error
    assert len(list((engine.settings.folder / "indexes").iterdir())) == 1


def test_a_long_document_is_read_again_after_its_index_made_room(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "LONG", 500)
    id = ready(engine, 1000)
    (place,) = (engine.settings.folder / "indexes").iterdir()
    assert not (place / "index.safetensors").exists(), "the index of a long text"
    before = engine.submit(id, ["w5?"])[0].result(60)
    engine.replies.clear()
    engine.library.store.keep_only(())  # it makes room, while the document is open
    assert not place.exists()
    assert engine.submit(id, ["w5?"])[0].result(60) == before
    assert place.exists()


def test_a_document_that_is_deleted_while_it_is_asked_is_unknown(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = ready(engine, 100)

    def deleted(*_: object) -> None:
        engine.forget(id)
        raise FileNotFoundError(id)

    monkeypatch.setattr(documents.Document, "ask_all", deleted)
    with pytest.raises(UnknownDocumentError):
        engine.submit(id, ["w5?"])[0].result(60)


def test_a_refusal_names_no_option_that_a_client_cannot_set() -> None:
    with pytest.raises(DocumentError) as raised:
        read_data(b"six by", "a.txt", Limits(file_bytes=5))
    assert "--" in raised.value.rule
    assert module.OPTIONS.sub("", raised.value.rule).endswith("above the limit of 5")


class Failing:
    """Reads a file, but not at the first attempts."""

    def __init__(self, read: Callable[..., Any], error: Exception, times: int) -> None:
        self.read, self.error, self.left = read, error, times

    def __call__(self, *given: Any) -> Any:
        if self.left:
            self.left -= 1
            raise self.error
        return self.read(*given)


@pytest.mark.parametrize(
    ("error", "times", "state", "code"),
    [
        (FileNotFoundError("gone"), 9, "ready", 0),  # nothing that a document could be blamed for
        (OSError(28, "no space"), 9, "ready", 0),
        (module.NoProcessError("no process"), 9, "ready", 0),
        (RuntimeError("ours"), 2, "ready", 0),
        (RuntimeError("ours"), 99, "failed", 500),
        (ReadingError("a.txt", "crashes its reader", "crash"), 2, "ready", 0),  # someone else has killed it
        (ReadingError("a.txt", "crashes its reader", "crash"), 99, "failed", 422),
        (ReadingError("a.txt", "could not be read in time", "hang"), 1, "failed", 504),
        (DocumentError("a.txt", "is broken"), 1, "failed", 422),
    ],
)
def test_a_document_is_only_failed_for_what_is_in_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception, times: int, state: str, code: int
) -> None:
    monkeypatch.setattr(module, "read_isolated", Failing(module.read_isolated, error, times))
    id = upload(engine, 50)
    until(lambda: engine.library.get(id).state in ("ready", "failed"))
    entry = engine.library.get(id)
    assert (entry.state, entry.code) == (state, code)
