"""A document is its text, and can be asked: each model reads it once."""

from pathlib import Path
from typing import Any

import pytest

import vcc
from tests.documents import small_model
from vcc.documents import Document, read_document
from vcc.documents.asker import Asker
from vcc.documents.index import Index
from vcc.documents.store import Store

QUESTIONS = ["w1 w2 ?", "w3 w4 w5"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return tuple(small_model.saved(tmp_path_factory.mktemp("model"), seed) for seed in (0, 1))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Asker]:
    """Who has read a text, one for each reading."""
    readers: list[Asker] = []
    read = Asker.index

    def counted(self: Asker, *given: Any) -> Index:
        readers.append(self)
        return read(self, *given)

    monkeypatch.setattr(Asker, "index", counted)
    return readers


def test_a_document_has_all_that_its_text_has(tmp_path: Path) -> None:
    path = tmp_path / "deed.md"
    path.write_text("# Term\n\nIt lasts. It ends.\n\n# Fees\n\nNone.")
    document, text = vcc.read(str(path)), read_document(path).content
    assert isinstance(document, Document) and document.content == text
    for name in ("text", "title", "source", "parts", "notes", "sha256"):
        assert getattr(document, name) == getattr(text, name)
    assert [document.part_at(offset).label for offset in (0, len(document.text))] == ["Term", "Fees"]
    first, last = document.sentence_around(*(document.text.index(word) for word in ("ends", ".\n\nFees")))
    assert document.text[first:last] == "It ends."


def test_each_model_reads_a_document_once_and_answers_for_itself(folders: tuple[str, str], reads: list[Asker]) -> None:
    document = Document(small_model.document(), model=folders[0])
    own = document.ask_all(QUESTIONS)
    assert document.ask_all(QUESTIONS, model=folders[0]) == own and len(reads) == 1
    other = document.ask_all(QUESTIONS, model=folders[1])
    assert len(reads) == 2 and other != own
    alone = document.ask(QUESTIONS[1], model=folders[1])  # scores of a batch of one and of two differ in rounding
    assert [(one.start, one.end) for one in alone] == [(one.start, one.end) for one in other[1].answers]
    assert [one.score for one in alone] == pytest.approx([one.score for one in other[1].answers], abs=1e-6)
    assert len(reads) == 2
    assert document.asker().model is reads[0].model and document.asker(folders[1]).model is reads[1].model


def test_a_document_with_a_store_is_read_once_for_all_processes(
    folders: tuple[str, str], reads: list[Asker], tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    first, second = (Document(small_model.document(), folders[0], Store(tmp_path)) for _ in range(2))
    first.index(progress=lambda *given: seen.append(given))
    assert seen and len(reads) == 1
    replies, facts = second.answer(QUESTIONS, top=2)
    assert len(reads) == 1 and facts.reading == 0 and facts.tokens == first.index().tokens
    assert replies == Document(small_model.document(), folders[0]).ask_all(QUESTIONS, top=2)


def test_a_threshold_and_a_number_of_answers_reach_the_model(folders: tuple[str, str]) -> None:
    document = Document(small_model.document(), folders[0])
    assert len(document.ask(QUESTIONS[0], top=1)) == 1 and len(document.ask(QUESTIONS[0], top=2)) == 2
    assert document.ask(QUESTIONS[0], threshold=1.0) == ()


def test_seeing_shows_the_answers_that_asking_gives(folders: tuple[str, str]) -> None:
    document = Document(small_model.document(), folders[0])
    view, facts = document.see(QUESTIONS[0], top=2)
    assert view.answers == document.ask(QUESTIONS[0], top=2) and view.layers == ("layer 2", "layer 3")
    assert facts.tokens == view.openness.shape[1]
