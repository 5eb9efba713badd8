"""An index on disk is whole and ours, or it is not used."""

import json
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.documents import small_model
from vcc.documents import index as index_module
from vcc.documents import store as store_module
from vcc.documents.asker import Asker
from vcc.documents.index import TENSORS, Index, TemporaryFolder
from vcc.documents.store import ASIDE, MANIFEST, Store, cache_folder, default_store, model_hash, move_in, seal

QUESTIONS = ["w1 w2 ?", "w3 w4 w5"]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The titles of the documents read, one for each reading."""
    titles: list[str] = []
    read = Asker.index

    def counted(self: Asker, document: Any, *rest: Any) -> Index:
        titles.append(document.title)
        return read(self, document, *rest)

    monkeypatch.setattr(Asker, "index", counted)
    return titles


def test_a_stored_index_answers_exactly_as_the_first_one(tmp_path: Path, reads: list[str]) -> None:
    asker, document, store = small_model.asker(), small_model.document(), Store(tmp_path)
    first = store.get(document, asker)
    second = store.get(document, asker)
    assert len(reads) == 1 and second.seconds == 0 and np.array_equal(first.offsets, second.offsets)
    assert first.tree.scales == second.tree.scales and first.tree.length == second.tree.length
    assert torch.equal(first.tree.means, second.tree.means)
    for name in ("differences", "counts", "positions"):
        assert all(map(torch.equal, getattr(first.tree, name), getattr(second.tree, name)))
    assert asker.replies_to(document, first, QUESTIONS)[0] == asker.replies_to(document, second, QUESTIONS)[0]
    assert (
        store.get(document, asker) and asker.replies_to(document, second, QUESTIONS)[0]
    )  # asking left the file as it was
    assert len(reads) == 1


def test_a_short_text_is_stored_as_tokens_and_answered_without_a_tree(tmp_path: Path, reads: list[str]) -> None:
    asker = small_model.asker(settings=replace(small_model.SETTINGS, dense_below=17))
    small_model.set_qa(asker.model, second_looks=3)
    document, store = small_model.document(15), Store(tmp_path)
    first, second = store.get(document, asker), store.get(document, asker)
    assert len(reads) == 1 and second.folder is not None and first.tree is None and second.tree is None
    assert np.array_equal(first.offsets, second.offsets) and np.array_equal(first.ids, second.ids)
    replies, facts = asker.replies_to(document, second, QUESTIONS)
    assert replies == asker.replies_to(document, first, QUESTIONS)[0]
    alone, facts = asker.replies_to(document, second, QUESTIONS[:1])
    assert facts.rows == () and facts.compression == 1.0 and facts.shown()["read"] == f"{facts.passages} passages"
    view, _ = asker.see(document, second, QUESTIONS[0])
    assert view.answers == alone[0].answers and view.layers == ("layer 2", "layer 3")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def forge(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def sealed(path: Path, **values: Any) -> None:
    """Forged with care: the manifest's own hash is right."""
    about = {**json.loads(path.read_text()), **values}
    about.pop("seal")
    path.write_text(json.dumps({**about, "seal": seal(about)}))


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: flip(folder / TENSORS),
        lambda folder: cut(folder / TENSORS),
        lambda folder: (folder / TENSORS).unlink(),
        lambda folder: (folder / MANIFEST).unlink(),
        lambda folder: (folder / MANIFEST).write_text("[]"),
        lambda folder: (folder / MANIFEST).write_text("{"),
        lambda folder: forge(folder / MANIFEST, format=0),
        lambda folder: forge(folder / MANIFEST, text="0" * 64),
        lambda folder: forge(folder / MANIFEST, model="0" * 64),
        lambda folder: forge(folder / MANIFEST, scales=[4, 1, 1, 1]),
        lambda folder: forge(folder / MANIFEST, tokens=1),
        lambda folder: forge(folder / MANIFEST, length=None),
        lambda folder: forge(folder / MANIFEST, title="Another"),
        lambda folder: sealed(folder / MANIFEST, scales=[8, 1]),
        lambda folder: sealed(folder / MANIFEST, length=3),
        lambda folder: sealed(folder / MANIFEST, length=1e400),
        lambda folder: sealed(folder / MANIFEST, scales="many"),
        lambda folder: (folder / MANIFEST).write_text("[" * 100_000),
        lambda folder: (folder / MANIFEST).write_text('{"a": ' * 100_000),
        lambda folder: ((folder / MANIFEST).unlink(), os.mkfifo(folder / MANIFEST)),
        lambda folder: ((folder / TENSORS).unlink(), os.mkfifo(folder / TENSORS)),
        lambda folder: (shutil.rmtree(folder), folder.write_text("a file")),
        lambda folder: (shutil.rmtree(folder), folder.symlink_to("nowhere")),
        lambda folder: (
            folder.rename(folder.parent.parent / "moved"),
            folder.symlink_to(folder.parent.parent / "moved"),
        ),
        lambda folder: (shutil.rmtree(folder), folder.mkdir()),
        lambda folder: (folder / "something else").write_text("?") and (folder / MANIFEST).unlink(),
    ],
)
def test_a_damaged_index_is_made_anew(harm: Any, tmp_path: Path, reads: list[str]) -> None:
    place = tmp_path / "store"
    asker, document, store = small_model.asker(), small_model.document(), Store(place)
    good = asker.replies_to(document, store.get(document, asker), QUESTIONS)[0]
    [folder] = place.iterdir()
    harm(folder)
    store.entries()
    assert asker.replies_to(document, store.get(document, asker), QUESTIONS)[0] == good
    assert len(reads) == 2
    store.get(document, asker)
    assert len(reads) == 2 and [path.name for path in place.iterdir()] == [folder.name]


def test_the_index_of_another_model_or_text_is_not_used(tmp_path: Path, reads: list[str]) -> None:
    asker, other, store = small_model.asker(0), small_model.asker(1), Store(tmp_path)
    document = small_model.document()
    store.get(document, asker)
    [folder] = tmp_path.iterdir()
    for who, what in ((other, document), (asker, small_model.document(seed=5))):
        # Even where somebody puts it in the other's place.
        folder.rename(store.place(what.sha256, model_hash(who)))
        assert (
            who.replies_to(what, store.get(what, who), QUESTIONS)[0]
            == who.replies_to(what, who.index(what), QUESTIONS)[0]
        )
        store.get(document, asker)
    assert len(store.entries()) == 3


def test_the_hash_of_a_model_is_that_of_weights_settings_and_tokenizer(tmp_path: Path) -> None:
    from dataclasses import replace

    from vcc.documents.shipped import load_asker

    asker = small_model.asker()
    assert model_hash(asker) == model_hash(small_model.asker())
    folder = small_model.saved(tmp_path / "one"), small_model.saved(tmp_path / "two")
    assert model_hash(load_asker(folder[0])) == model_hash(load_asker(folder[1]))
    assert model_hash(small_model.asker(settings=replace(small_model.SETTINGS, budget=(5, 7)))) != model_hash(asker)
    changed = small_model.asker()
    with torch.no_grad():
        changed.model.bert.embeddings.LayerNorm.bias[3] += 1e-6
    assert model_hash(changed) != model_hash(asker)


def test_a_model_in_16_bits_shares_the_indexes_of_the_same_one_in_32() -> None:
    """As the bundled one: it is stored in 8 bits, a GPU computes in 16 and a CPU in 32."""
    askers = [Asker(one, small_model.tokenizer()) for one in (small_model.model(), small_model.model().half())]
    assert model_hash(askers[0]) == model_hash(askers[1])
    document = small_model.document()
    index = askers[0].index(document)  # made in 32 bits, asked in both
    found = [one.replies_to(document, index, ["w1 w2 ?", "w7 ?"], threshold=0.0)[0] for one in askers]
    for exact, near in zip(*found, strict=True):
        assert near.answers[0].text == exact.answers[0].text
        assert near.answers[0].score == pytest.approx(exact.answers[0].score, abs=0.01)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("where", ["save_file", "sha256_of"])
def test_interrupted_writing_leaves_nothing(
    where: str, failure: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker, document, store = small_model.asker(), small_model.document(), Store(tmp_path)

    def interrupted(*_: Any) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(index_module, where, interrupted)
        if failure is OSError:
            assert store.get(document, asker).tokens  # nothing is kept, and the document is read all the same
        else:
            with pytest.raises(failure):
                store.get(document, asker)
    assert list(tmp_path.iterdir()) == []
    assert store.get(document, asker).tokens


def test_clear_removes_indexes_and_leftovers_and_nothing_else(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.entries() == [] and Store(tmp_path / "nowhere").clear() == (0, 0)
    store.get(small_model.document(), small_model.asker())
    (tmp_path / f"{ASIDE}x").mkdir()
    (tmp_path / "somebody else's").mkdir()
    [entry] = store.entries()
    assert entry.title == "Words" and entry.tokens > 400
    assert entry.size == sum(os.path.getsize(file) for file in entry.path.iterdir()) > 16 * entry.tokens
    assert store.clear() == (2, entry.size)
    assert [path.name for path in tmp_path.iterdir()] == ["somebody else's"]


def test_the_cache_folder_follows_the_xdg_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "vcc"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "vcc"


def problems(folder: Path | None) -> tuple[list[str], Store]:
    said: list[str] = []
    return said, Store(folder, said.append)


def test_where_nothing_can_be_kept_the_document_is_read_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker, document = small_model.asker(), small_model.document()
    good = asker.replies_to(document, asker.index(document), QUESTIONS)[0]
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    homeless = default_store()
    for folder in (tmp_path / "file" / "indexes", Path("/proc/nothing/indexes"), homeless.folder):
        said, store = problems(folder)
        assert asker.replies_to(document, store.get(document, asker), QUESTIONS)[0] == good
        assert len(said) == 1 and "the index is not stored" in said[0]
        assert store.entries() == [] and store.clear() == (0, 0)


def test_many_at_once_all_get_their_index(tmp_path: Path) -> None:
    asker, document = small_model.asker(), small_model.document()
    model, index = model_hash(asker), asker.index(document)
    path = Store(tmp_path).place(document.sha256, model)
    failed: list[BaseException] = []

    def write_and_read() -> None:
        try:
            for _ in range(8):
                aside = TemporaryFolder(tmp_path, ASIDE)
                store_module.save(path, document, model, index, aside.path)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write_and_read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and [entry.path for entry in Store(tmp_path).entries()] == [path]
    assert store_module.load(path, document, model, asker.model.device).tokens == index.tokens
    assert [place.name for place in tmp_path.iterdir()] == [path.name]


def test_clearing_what_another_process_clears_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.get(small_model.document(), small_model.asker())
    monkeypatch.setattr(store_module, "size_of", lambda path: shutil.rmtree(path) or 0)  # before we remove it
    assert store.clear() == (1, 0) and store.entries() == []


def test_moving_in_gives_up_where_there_is_no_way(tmp_path: Path) -> None:
    (tmp_path / "aside").mkdir()
    with pytest.raises(OSError):
        move_in(tmp_path / "aside", tmp_path / "nowhere" / "place")


def test_old_leftovers_go_and_young_ones_stay(tmp_path: Path) -> None:
    for name, age in (("old", 2 * 24 * 3600), ("young", 3600)):
        (tmp_path / f"{ASIDE}{name}").mkdir()
        (tmp_path / f"{ASIDE}{name}" / TENSORS).write_text("half")
        os.utime(tmp_path / f"{ASIDE}{name}", (time.time() - age,) * 2)
    Store(tmp_path).get(small_model.document(), small_model.asker())
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith(ASIDE)} == {f"{ASIDE}young"}


def test_over_the_limit_the_one_not_asked_for_longest_goes(tmp_path: Path) -> None:
    asker, documents = small_model.asker(), [small_model.document(seed=10 * i) for i in range(3)]
    for document in documents[:2]:
        Store(tmp_path).get(document, asker)
    size = max(entry.size for entry in Store(tmp_path).entries())
    paths = [Store(tmp_path).place(document.sha256, model_hash(asker)) for document in documents]
    for path, age in zip(paths, (100, 200), strict=False):
        os.utime(path, (time.time() - age,) * 2)
    Store(tmp_path, most_bytes=2 * size + size // 2).get(documents[2], asker)
    assert [path.exists() for path in paths] == [True, False, True]
    Store(tmp_path, most_bytes=1).get(documents[1], asker)  # never the one just made
    assert [path.exists() for path in paths] == [False, True, False]


def test_a_folder_with_other_things_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / ("a" * 32)).mkdir()
    (tmp_path / ("a" * 32) / "thesis.txt").write_text("years of work")
    assert Store(tmp_path).clear() == (0, 0) and (tmp_path / ("a" * 32) / "thesis.txt").exists()


def test_a_model_that_was_used_is_the_same_model() -> None:
    """Tokenizers keep the padding and the truncation of their last call."""
    asker = small_model.asker()
    asker.tokenizer.backend_tokenizer.enable_truncation(64)
    asker.tokenizer.backend_tokenizer.enable_padding(length=64)
    before = model_hash(asker)
    asker.index(small_model.document())
    assert model_hash(asker) == before == model_hash(small_model.asker())


def test_an_index_of_another_version_is_made_again_and_reported_in_one_line(tmp_path: Path, reads: list[str]) -> None:
    said: list[str] = []
    asker, document, store = small_model.asker(), small_model.document(), Store(tmp_path, said.append)
    folder = store.get(document, asker).folder
    assert folder is not None and said == []
    forge(folder / MANIFEST, format=3)
    store.get(document, asker)
    assert len(reads) == 2 and len(said) == 1 and document.title in said[0] and "another version" in said[0]
    store.get(document, asker)
    assert len(reads) == 2 and len(said) == 1
