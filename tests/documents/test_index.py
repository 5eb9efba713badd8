"""A text that is too long for memory is asked like any other: its index is on disk, whole or absent."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.documents import small_model
from vcc.data.features import tokenize_text
from vcc.documents import index as index_module
from vcc.documents import store as store_module
from vcc.documents.document import Document
from vcc.documents.index import DiskIndex, RemovedIndexError, pieces_of
from vcc.documents.store import Store
from vcc.errors import UsageError


@pytest.fixture(autouse=True)
def short_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "LONG", 100)
    monkeypatch.setattr(index_module, "PIECE", 300)


def test_pieces_make_the_tokens_of_the_whole(tmp_path: Path) -> None:
    text, asker = small_model.document(), small_model.asker()
    whole = tokenize_text(text.text, asker.tokenizer)
    index = Store(tmp_path).get(text, asker)
    assert np.array_equal(index.ids, whole.ids) and np.array_equal(index.offsets, whole.offsets)
    assert "".join(piece for _, piece in pieces_of(text.text)) == text.text
    assert len(list(pieces_of("x" * 1000))) == 4  # no word ends anywhere


def test_it_answers_as_in_memory_where_scales_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, model = small_model.document(60), str(tmp_path / "model")
    made = small_model.model(settings=replace(small_model.SETTINGS, budget=(1000, 6)))
    small_model.set_qa(made, nodes=1000)  # all of them are visited, so nothing is left out
    made.save_pretrained(model)
    small_model.tokenizer().save_pretrained(model)
    questions = ["w1 w2?", "w5 w9 w30?"]
    monkeypatch.setattr(index_module, "LONG", 10**9)
    plain, facts = Document(text, model).answer(questions, top=2)
    monkeypatch.setattr(index_module, "LONG", 100)
    long, long_facts = Document(text, model).answer(questions, top=2)
    assert (facts.tokens, facts.rows) == (long_facts.tokens, long_facts.rows)
    for one, other in zip(plain, long, strict=True):
        assert [(a.start, a.end) for a in one.answers] == [(a.start, a.end) for a in other.answers]
        assert [a.score for a in one.answers] == pytest.approx([a.score for a in other.answers], abs=1e-5)


def test_the_index_is_kept_found_and_made_again_where_it_is_harmed(tmp_path: Path) -> None:
    text, asker, store = small_model.document(), small_model.asker(), Store(tmp_path)
    first = store.get(text, asker)
    assert first.seconds > 0 and store.get(text, asker).seconds == 0
    (entry,) = store.entries()
    assert (entry.title, entry.tokens) == ("Words", first.tokens)
    (first.folder / "means").write_bytes(b"short")
    assert store.get(text, asker).seconds > 0
    assert store.get(text, small_model.asker(1)).seconds > 0 and len(store.entries()) == 2
    assert store.clear()[0] == 2


def test_reading_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path).get(small_model.document(), small_model.asker(), stop)
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_kept_it_is_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said: list[str] = []
    index = Store(tmp_path / "file", said.append).get(small_model.document(), small_model.asker())
    assert index.folder is None and index.tokens and len(said) == 1 and "the index is not stored" in said[0]


def test_a_disk_that_fills_up_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store_module, "write_whole", full)
    said: list[str] = []
    index = Store(tmp_path, said.append).get(small_model.document(), small_model.asker())
    assert index.folder is None and "No space left" in said[0] and len(said) == 1
    qa = small_model.asker().qa
    assert index.spans(qa, [qa.ids_of("w1 w2 ?")]).found[0], "it answers from the folder it was written to"
    del index
    assert list(tmp_path.iterdir()) == []


def test_of_two_that_index_at_once_the_second_uses_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, asker, store, write = small_model.document(), small_model.asker(), Store(tmp_path), index_module.write_tokens

    def overtaken(*given: Any) -> None:
        monkeypatch.setattr(index_module, "write_tokens", write)
        first = store.get(text, asker)  # by another process, meanwhile
        inodes.append((first.folder / "means").stat().st_ino)
        write(*given)

    inodes: list[int] = []
    monkeypatch.setattr(index_module, "write_tokens", overtaken)
    second = store.get(text, asker)
    assert (second.folder / "means").stat().st_ino == inodes[0]
    assert [path.name for path in tmp_path.iterdir()] == [second.folder.name]


def test_a_pipe_or_a_file_in_its_place_is_replaced(tmp_path: Path) -> None:
    text, asker, store = small_model.document(), small_model.asker(), Store(tmp_path)
    path = store.get(text, asker).folder
    (path / "manifest.json").unlink()
    os.mkfifo(path / "manifest.json")
    assert store.get(text, asker).seconds > 0
    shutil.rmtree(path)
    path.touch()
    assert store.get(text, asker).seconds > 0 and store.get(text, asker).seconds == 0


def test_the_limit_of_the_store_holds_for_long_ones_too(tmp_path: Path) -> None:
    store = Store(tmp_path, most_bytes=1)
    for seed in range(3):
        text = small_model.document(60, seed)
        kept = store.get(text, small_model.asker()).folder
        assert [entry.path for entry in store.entries()] == [kept]


def test_it_cannot_be_shown(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too many to show"):
        Document(small_model.document(), small_model.saved(tmp_path)).see("w1?")


def test_files_that_are_removed_in_the_middle_of_a_question_stay_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, asker = small_model.document(), small_model.asker()
    index = Store(tmp_path).get(text, asker)
    questions = ["w1 w2?", "w5 w9 w30?"]
    expected = asker.find(index, questions).found
    removed: list[bool] = []

    def remove(done: int, total: int) -> None:
        removed.append(index.folder.exists())
        shutil.rmtree(index.folder, ignore_errors=True)

    assert asker.find(index, questions, progress=remove).found == expected and removed == [True, False]
    with pytest.raises(RemovedIndexError, match="was removed"):
        asker.find(index, questions)


def test_an_index_that_goes_between_looking_and_opening_is_made_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = Document(small_model.document(), small_model.saved(tmp_path / "model"), Store(tmp_path / "store"))
    expected = document.ask_all(["w1 w2?"])
    spans, times = DiskIndex.spans, []

    def vanishing(self: DiskIndex, *given: Any) -> Any:
        times.append(self)
        if len(times) <= gone:
            shutil.rmtree(self.folder)
        return spans(self, *given)

    monkeypatch.setattr(DiskIndex, "spans", vanishing)
    gone = 1
    assert document.ask_all(["w1 w2?"]) == expected and len(times) == 2
    times.clear()
    gone = 2
    with pytest.raises(RemovedIndexError):
        document.ask_all(["w1 w2?"])
    assert document.ask_all(["w1 w2?"]) == expected
