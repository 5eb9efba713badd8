"""Small collections of documents for the tests: texts that the tiny model can read, and files that break readers."""

import random
from pathlib import Path

import pytest

from tests.documents import small_model
from tests.documents.samples import pdf_bytes

POISON = {
    "broken.pdf": b"%PDF-1.4 and no more",
    "empty.txt": b"",
    "binary.txt": bytes(range(256)) * 40,
    "misnamed.docx": b"no archive",
}


def contracts(folder: Path, number: int, poisoned: int = 0, seed: int = 0, shortest: int = 30) -> Path:
    """`number` documents of `shortest` to 16 times as many words, in two folders, and `poisoned` that break a rule."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(number):
        words = small_model.text(int(shortest * 10 ** rng.uniform(0, 1.2)), seed + i)
        place = folder / "ab"[i % 2] / f"contract {i:05d}.{'pdf' if i % 5 == 0 else 'txt'}"
        place.parent.mkdir(exist_ok=True)
        lines = [words[at : at + 80] for at in range(0, min(len(words), 800), 80)]
        place.write_bytes(pdf_bytes([lines]) if i % 5 == 0 else words.encode())
    for i, (name, data) in zip(range(poisoned), list(POISON.items()) * poisoned, strict=False):
        (folder / f"{i:05d} {name}").write_bytes(data)
    return folder


def model_in_this_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A small model, with a cache of its own and without worker processes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr("vcc.commands.shared.collection.default_workers", lambda: 0)
    return small_model.saved(folder / "model")


def texts(folder: Path, number: int) -> Path:
    """A folder with so many texts, each longer than the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(number):
        (folder / f"{seed}.txt").write_text(small_model.text(60 + 40 * seed, seed))
    return folder
