"""The folder of a service: a limit on its size, one on age, and nothing of a user's name in it."""

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.documents import small_model
from tests.serve.running import until
from vcc.serve import engine as engine_module
from vcc.serve import library as module
from vcc.serve.engine import Engine
from vcc.serve.library import FolderError, FullError, Library, UnknownDocumentError
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


def test_indexes_make_room_for_newer_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcc.serve.library.FOR_INDEXES", 0.3)  # room for four of eight
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
        assert 1 < len(sizes) < 8 and sum(sizes) <= 300_000 and library.size() <= settings.kept_bytes
        engine.open.clear()  # as after a restart: what is asked now may have no index any more
        (reply,) = engine.submit(entries[0].id, ["w5?"])
        assert reply.result(60).question == "w5?"
        assert library.size() <= settings.kept_bytes
    finally:
        engine.close()


def test_a_document_without_room_for_its_text_waits_and_is_read_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "RETRY", 0.01)
    settings = ServiceSettings(tmp_path / "kept", model=small_model.saved(tmp_path / "model"), kept_bytes=100_000)
    library = Library(settings.folder, settings.kept_bytes, settings.kept_hours)
    engine = Engine(settings, library, Metrics())
    try:
        entry = library.add(small_model.text(1500).encode(), "a.txt")
        other = library.add(b"x" * (19_000 - library.size()), "b.txt")
        engine._read(entry.id)
        found = library.get(entry.id)
        assert found.state in ("waiting", "reading") and "limit" in (found.error or "limit")
        engine.forget(other.id)
        until(lambda: library.get(entry.id).state == "ready")
        assert (library.get(entry.id).error, library.get(entry.id).code) == ("", 0)
    finally:
        engine.close()


NOW, TICKS = time.time(), time.monotonic()


def clock(monkeypatch: pytest.MonkeyPatch, passed: float, jump: float = 0.0) -> None:
    """So much time passes, and the system's clock says it was `jump` more."""
    monkeypatch.setattr(module.time, "time", lambda: NOW + passed + jump)
    monkeypatch.setattr(module.time, "monotonic", lambda: TICKS + passed)


def test_a_clock_that_jumps_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 0)
    Library(tmp_path, 10**6, kept_hours=720).add(b"x", "before the start.txt")
    library = Library(tmp_path, 10**6, kept_hours=720)
    library.add(b"y", "after the start.txt")
    for hours in (0.1, 2, 100):
        for jump in (31 * 24, 10 * 365 * 24, -365 * 24):
            clock(monkeypatch, hours * HOUR, jump * HOUR)
            assert library.too_old() == []
            assert Library(tmp_path, 10**6, kept_hours=720).too_old() == []  # started with the wrong clock
    clock(monkeypatch, 100 * HOUR, -365 * 24 * HOUR)
    library.add(b"z", "uploaded in the past.txt")
    clock(monkeypatch, 102 * HOUR)
    assert library.too_old() == []
    clock(monkeypatch, 721 * HOUR)
    assert len(library.too_old()) == 2


def test_documents_grow_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 0)
    library = Library(tmp_path, 10**6, kept_hours=2)
    first = library.add(b"x", "a.txt")
    assert library.too_old() == []
    clock(monkeypatch, HOUR)
    second = library.add(b"y", "b.txt")
    clock(monkeypatch, 2.5 * HOUR)
    assert library.too_old() == [first.id]
    again = Library(tmp_path, 10**6, kept_hours=2)  # after a restart
    assert again.too_old() == []  # the clock may be wrong just after a start
    clock(monkeypatch, 3.6 * HOUR)
    assert again.too_old() == [second.id, first.id]
    assert library.too_old() == [second.id, first.id]
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


def test_sizes_need_no_look_at_folders_that_others_delete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(tmp_path, 10**6, 1)
    first, second = library.add(b"x" * 500, "a.txt"), library.add(b"x" * 300, "b.txt")
    library.keep_text(first.id, small_model.document(100))
    on_disk = sum(path.stat().st_size for path in library.folder.rglob("*") if path.name in ("original", "text.json"))
    assert library.documents_size() == on_disk + 2 * module.ABOUT_SIZE
    assert Library(tmp_path, 10**6, 1).documents_size() == library.documents_size()  # after a restart
    shutil.rmtree(library.folder / second.id)  # in the middle of another thread's work
    assert library.size() > 0 and library.add(b"y", "c.txt").state == "waiting"


def test_uploads_and_sizes_do_not_mind_deletions(tmp_path: Path) -> None:
    library = Library(tmp_path, 10**7, 1)

    def some(seed: int) -> None:
        for _ in range(30):
            entry = library.add(b"x" * 100, f"{seed}.txt")
            library.keep_text(entry.id, small_model.document(5, seed))
            library.size()
            library.delete(entry.id)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(some, range(8)))
    assert (library.all(), library.size(), library.arriving, list(library.folder.iterdir())) == ([], 0, 0, [])


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 507), (errno.EDQUOT, 507)])
def test_a_full_disk_leaves_nothing_and_has_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    library = Library(tmp_path, 10**6, 1)
    monkeypatch.setattr(os, "fsync", failing(OSError(number, os.strerror(number))))
    with pytest.raises(FullError, match="disk of the service is full") as raised:
        library.add(b"x", "a.txt")
    assert raised.value.code == code
    assert (library.all(), library.size(), list(library.folder.iterdir())) == ([], 0, [])


def test_a_read_only_folder_is_an_error_and_nothing_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(tmp_path, 10**6, 1)
    entry = library.add(b"x", "a.txt")
    refusal = failing(PermissionError(errno.EACCES, "Permission denied"))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refusal)
        patch.setattr(Path, "unlink", refusal)
        with pytest.raises(FolderError, match="Permission denied"):
            library.add(b"y", "b.txt")
        with pytest.raises(FolderError, match="cannot be deleted"):
            library.delete(entry.id)
        assert library.all() == [entry]
    library.delete(entry.id)
    assert library.all() == list(library.folder.iterdir()) == []


def failing(error: Exception) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_an_entry_of_another_version_is_not_thrown_away(tmp_path: Path) -> None:
    library = Library(tmp_path, 10**6, 1)
    entry = library.add(b"x", "a.txt")
    about = library.folder / entry.id / "about.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "new": 1}))
    (about.parent / ".writing-left").write_text("half")
    assert Library(tmp_path, 10**6, 1).all() == [entry] and not (about.parent / ".writing-left").exists()
