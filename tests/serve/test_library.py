"""The folder of a service: a limit on its size, one on age, and nothing of a user's name in it."""

import os
import time
from pathlib import Path

import pytest

from tests.documents import small_model
from vcc.serve import library as module
from vcc.serve.engine import Engine
from vcc.serve.library import FullError, Library, UnknownDocumentError
from vcc.serve.metrics import Metrics
from vcc.serve.settings import ServiceSettings

HOUR = 3600.0


def test_files_fill_their_part_of_the_folder_and_no_more(tmp_path: Path) -> None:
    library = Library(tmp_path, 100_000, 1)  # a fifth of it is for documents
    kept = [library.add(b"x" * 9_000, "a.txt"), library.add(b"x" * 9_000, "b.txt")]
    with pytest.raises(FullError, match="20,000 bytes of documents"):
        library.add(b"x" * 9_000, "c.txt")
    assert library.all() and library.size() < 20_000 and len(list(library.folder.iterdir())) == 2
    library.delete(kept[0].id)
    assert library.add(b"x" * 9_000, "c.txt").id in library.entries


def test_a_text_that_has_no_room_is_not_kept(tmp_path: Path) -> None:
    library = Library(tmp_path, 100_000, 1)
    entry = library.add(b"x", "a.txt")
    text = small_model.document(20_000)
    with pytest.raises(FullError):
        library.keep_text(entry.id, text)
    assert library.size() < 20_000


def test_indexes_make_room_for_newer_ones(tmp_path: Path) -> None:
    model = small_model.saved(tmp_path / "model")
    settings = ServiceSettings(tmp_path / "kept", model=model, kept_bytes=1_000_000, readers=1)
    library = Library(settings.folder, settings.kept_bytes, settings.kept_hours)
    engine = Engine(settings, library, Metrics())
    try:
        entries = [library.add(small_model.text(1500, seed).encode(), "a.txt") for seed in range(8)]
        for entry in entries:
            engine._read(entry.id)
        assert {library.get(entry.id).state for entry in entries} == {"ready"}
        sizes = [index.size for index in library.store.entries()]
        assert 1 < len(sizes) < 8 and sum(sizes) <= 800_000 and library.size() <= settings.kept_bytes
        engine.open.clear()  # as after a restart: what is asked now may have no index any more
        (reply,) = engine.submit(entries[0].id, ["w5?"])
        assert reply.result(60).question == "w5?"
        assert library.size() <= settings.kept_bytes
    finally:
        engine.close()


def test_a_document_without_room_for_its_text_fails_with_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ServiceSettings(tmp_path / "kept", model=small_model.saved(tmp_path / "model"), kept_bytes=100_000)
    library = Library(settings.folder, settings.kept_bytes, settings.kept_hours)
    engine = Engine(settings, library, Metrics())
    try:
        entry = library.add(small_model.text(3000).encode(), "a.txt")
        library.add(b"x" * (19_500 - library.size()), "b.txt")
        engine._read(entry.id)
        found = library.get(entry.id)
        assert (found.state, found.code) == ("failed", 503) and "limit" in found.error
    finally:
        engine.close()


def test_documents_grow_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, now = Library(tmp_path, 10**6, kept_hours=2), time.time()
    first = library.add(b"x", "a.txt")
    assert library.too_old() == []
    monkeypatch.setattr(module.time, "time", lambda: now + HOUR)
    second = library.add(b"y", "b.txt")
    monkeypatch.setattr(module.time, "time", lambda: now + 2.5 * HOUR)
    assert library.too_old() == [first.id]
    again = Library(tmp_path, 10**6, kept_hours=2)  # after a restart
    assert again.too_old() == [first.id]
    again.delete(first.id)
    assert [entry.id for entry in again.all()] == [second.id] and not (again.folder / first.id).exists()
    with pytest.raises(UnknownDocumentError):
        again.get(first.id)


def test_names_of_users_are_shown_and_never_opened(tmp_path: Path) -> None:
    library = Library(tmp_path, 10**6, 1)
    for name in ("../../x.txt", "C:\\a\\x.txt", "/etc/x.txt"):
        entry = library.add(b"x", name)
        assert entry.name == "x.txt"
        assert library.original(entry.id) == library.folder / entry.id / "original"
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"original", "about.json"}
    assert os.stat(library.folder).st_mode & 0o077 == 0


def test_what_is_deleted_while_sizes_are_added_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(tmp_path, 10**6, 1)
    entry = library.add(b"x" * 500, "a.txt")
    monkeypatch.setattr(Path, "rglob", lambda *_: iter([tmp_path / "gone", library.original(entry.id)]))
    assert library.size() == 500
