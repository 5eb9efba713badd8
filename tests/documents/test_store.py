"""An index on disk is whole and ours, or it is not used."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.documents import small_model
from vcc.documents import store as store_module
from vcc.documents.asker import Asker, Index
from vcc.documents.store import ASIDE, MANIFEST, TENSORS, Store, cache_folder, model_hash

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
    assert asker.ask(document, first, QUESTIONS)[0] == asker.ask(document, second, QUESTIONS)[0]
    assert store.get(document, asker) and asker.ask(document, second, QUESTIONS)[0]  # asking left the file as it was
    assert len(reads) == 1


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def forge(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


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
    ],
)
def test_a_damaged_index_is_made_anew(harm: Any, tmp_path: Path, reads: list[str]) -> None:
    asker, document, store = small_model.asker(), small_model.document(), Store(tmp_path)
    good = asker.ask(document, store.get(document, asker), QUESTIONS)[0]
    [folder] = tmp_path.iterdir()
    harm(folder)
    assert asker.ask(document, store.get(document, asker), QUESTIONS)[0] == good
    assert len(reads) == 2
    store.get(document, asker)
    assert len(reads) == 2 and [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_the_index_of_another_model_or_text_is_not_used(tmp_path: Path, reads: list[str]) -> None:
    asker, other, store = small_model.asker(0), small_model.asker(1), Store(tmp_path)
    document = small_model.document()
    store.get(document, asker)
    [folder] = tmp_path.iterdir()
    for who, what in ((other, document), (asker, small_model.document(seed=5))):
        # Even where somebody puts it in the other's place.
        folder.rename(store.place(what.sha256, model_hash(who)))
        assert who.ask(what, store.get(what, who), QUESTIONS)[0] == who.ask(what, who.index(what), QUESTIONS)[0]
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


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("where", ["save_file", "sha256_of"])
def test_interrupted_writing_leaves_nothing(
    where: str, failure: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker, document, store = small_model.asker(), small_model.document(), Store(tmp_path)

    def interrupted(*_: Any) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(store_module, where, interrupted)
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
    assert entry.size == sum(os.path.getsize(file) for file in entry.path.iterdir()) > 16 * 4 * entry.tokens
    assert store.clear() == (2, entry.size)
    assert [path.name for path in tmp_path.iterdir()] == ["somebody else's"]


def test_the_cache_folder_follows_the_xdg_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "vcc"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "vcc"


def test_a_model_that_was_used_is_the_same_model() -> None:
    """Tokenizers keep the padding and the truncation of their last call."""
    asker = small_model.asker()
    asker.tokenizer.backend_tokenizer.enable_truncation(64)
    asker.tokenizer.backend_tokenizer.enable_padding(length=64)
    before = model_hash(asker)
    asker.index(small_model.document())
    assert model_hash(asker) == before == model_hash(small_model.asker())
