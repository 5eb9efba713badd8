"""Indexes on disk, so that a document is read once: a folder for each, named by the hashes of its text and its model.

A folder is written aside and renamed, so it is whole or absent, also when several processes write it concurrently. An
index that does not verify, or belongs to another text or model, is replaced. Where nothing can be written, the document
is read all the same and the problem is reported.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from vcc.documents.formats.gate import Limits, open_file
from vcc.documents.text import Text
from vcc.errors import DocumentError
from vcc.files import cache_folder, write_whole

if TYPE_CHECKING:
    from vcc.documents.asker import Asker
    from vcc.documents.index import Index, TemporaryFolder
    from vcc.qa.model import Progress

ASIDE = ".writing-"
MANIFEST = "manifest.json"
# The files of an index, of either kind.
FILES = re.compile(
    r"manifest\.json|index\.safetensors|ids|offsets|[a-z]+\.json|means|(differences|counts|positions)\.?\d*"
)
MANIFEST_LIMITS = Limits(file_bytes=1_000_000)
IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
DAY = 24 * 3600.0
MOST_BYTES = 20_000_000_000  # of all indexes together; the ones not asked for longest go first


class DamagedError(Exception):
    """An index that may not be used; the message says why."""


@dataclass(frozen=True)
class StoredIndex:
    """One index of the store, as it is listed."""

    path: Path
    title: str
    source: str
    tokens: int
    size: int  # bytes


def model_hash(asker: "Asker") -> str:
    """SHA-256 of all that an index depends on but the text: weights, settings, tokenizer."""
    digest = hashlib.sha256(f"index, {type(asker.model).__name__}".encode())
    settings = {"vcc": asker.model.vcc.to_dict(), "config": asker.model.config.to_dict()}
    settings["config"].pop("_name_or_path", None)  # the same model in another folder is the same
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    tokenizer = json.loads(asker.tokenizer.backend_tokenizer.to_str())
    rules = {name: part for name, part in tokenizer.items() if name not in ("padding", "truncation")}  # change in use
    digest.update(json.dumps(rules, sort_keys=True).encode())
    for name, tensor in sorted(asker.model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(memoryview(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()))
    return digest.hexdigest()


@dataclass(frozen=True)
class Store:
    """The indexes in a folder; None: there is no place for them. `tell` hears why an index could not be kept."""

    folder: Path | None
    tell: Callable[[str], None] = field(default=lambda problem: None, compare=False)
    most_bytes: int = MOST_BYTES

    def get(self, text: Text, asker: "Asker", progress: "Progress" = lambda done, total: None) -> "Index":
        """The text's index for this model: the stored one if it is good, else a new one, which is then stored."""
        if self.folder is None:
            self.tell("no index is kept: there is no home folder, and XDG_CACHE_HOME names no other")
            return asker.index(text, progress)
        model = model_hash(asker)
        try:
            index = load(self.place(text.sha256, model), text, model, asker.model.device)
        except DamagedError:
            return self._keep(text, model, lambda place: asker.index(text, progress, place))
        self.holds(index)  # it was asked for just now
        return index

    def holds(self, index: "Index") -> bool:
        """Whether an index is still where it was kept, or never was; it counts as asked for."""
        try:
            if index.folder is not None:
                os.utime(index.folder)
        except FileNotFoundError:
            return False
        except OSError:  # it may not be written
            pass
        return True

    def renewed(self, index: "Index", text: Text, asker: "Asker", progress: "Progress") -> "Index":
        """An index whose folder was removed, back in the store: from memory, or read again if it was only on disk."""
        from vcc.documents.index import MemoryIndex

        if isinstance(index, MemoryIndex) and self.folder is not None:
            return self._keep(text, model_hash(asker), lambda place: index)
        return self.get(text, asker, progress)

    def _keep(self, text: Text, model: str, read: "Callable[[TemporaryFolder | None], Index]") -> "Index":
        """An index in its place in the store; where that cannot be written, as it was read."""
        from vcc.documents.index import TemporaryFolder  # imports transformers, which listing does not need

        assert self.folder is not None
        index, path = None, self.place(text.sha256, model)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            aside = TemporaryFolder(self.folder, ASIDE)
            try:
                index = read(aside)
                if not is_good(path, text, model):  # another process may have been faster, and is asking its own by now
                    save(path, text, model, index, aside.path)
            except (OSError, SafetensorError):  # an index on disk is asked where it is
                raise
            except BaseException:  # Ctrl-C too
                aside.remove()
                raise
            kept = index.kept_in(path)
            aside.remove()
            self.tidy(path)
            return kept
        except (OSError, SafetensorError) as error:  # the disk is full, the folder may not be written, ...
            self.tell(f"no index is kept in {self.folder}: {error}")
            return index or read(None)

    def place(self, sha256: str, model: str) -> Path:
        assert self.folder is not None
        return self.folder / hashlib.sha256(f"{sha256} {model}".encode()).hexdigest()[:32]

    def entries(self) -> list[StoredIndex]:
        """All indexes, by title; also those that are damaged, because they take room too."""
        return sorted(self._entries(), key=lambda entry: (entry.title, entry.path))

    def _entries(self) -> Iterator[StoredIndex]:
        for path in self._folders():
            if path.name.startswith(ASIDE):
                continue
            try:
                about = read_manifest(path)
                title, source, tokens = str(about["title"]), str(about["source"]), int(about["tokens"])
            except (DamagedError, KeyError, TypeError, ValueError):
                title, source, tokens = "(damaged)", "", 0
            yield StoredIndex(path, title, source, tokens, size_of(path))

    def tidy(self, kept: Path) -> None:
        """Remove what interrupted writing left more than a day ago and, over the limit, what was not asked for longest;
        never `kept`.
        """
        by_age: list[tuple[float, Path, int]] = []
        for path in self._folders():
            with suppress(OSError):  # another process may tidy, too
                changed = path.stat().st_mtime
                if not path.name.startswith(ASIDE):
                    by_age.append((changed, path, size_of(path)))
                elif changed < time.time() - DAY:
                    shutil.rmtree(path, ignore_errors=True)
        over = sum(size for _, _, size in by_age) - self.most_bytes
        for _, path, size in sorted(by_age):
            if over > 0 and path != kept:
                shutil.rmtree(path, ignore_errors=True)
                over -= size

    def size(self) -> int:
        """Bytes of all indexes, also of those that are being written."""
        return sum(map(size_of, self._folders()))

    def keep_only(self, places: Container[Path]) -> None:
        """Remove every index that is not at one of `places`, but none that is being written."""
        for path in self._folders():
            if not path.name.startswith(ASIDE) and path not in places:
                try:
                    shutil.rmtree(path)
                except FileNotFoundError:  # another thread was faster
                    shutil.rmtree(path, ignore_errors=True)

    def clear(self) -> tuple[int, int]:
        """Remove all indexes and what interrupted writing has left: how many, and their bytes."""
        folders = list(self._folders())
        size = sum(map(size_of, folders))
        for path in folders:
            shutil.rmtree(path, ignore_errors=True)  # another process may clear, too
        return len(folders), size

    def _folders(self) -> Iterator[Path]:
        """Only what this store has made: a folder of ours may hold other things too."""
        if self.folder is None or not self.folder.is_dir():
            return
        with os.scandir(self.folder) as found:
            names = sorted(entry.name for entry in found if entry.is_dir(follow_symlinks=False))
        for name in names:
            if name.startswith(ASIDE) or (len(name) == 32 and set(name) <= set("0123456789abcdef")):
                path = self.folder / name
                with suppress(OSError):
                    if all(FILES.fullmatch(file) or file.startswith(ASIDE) for file in os.listdir(path)):
                        yield path


def default_store(tell: Callable[[str], None] = lambda problem: None) -> Store:
    try:
        return Store(cache_folder() / "indexes", tell)
    except RuntimeError:  # the user has no home
        return Store(None, tell)


def save(path: Path, text: Text, model: str, index: "Index", aside: Path) -> None:
    """Write an index to the folder `aside`, force it to disk, and let it appear at `path` in one step."""
    about = {
        "format": index.format,
        "text": text.sha256,
        "model": model,
        "title": text.title,
        "source": text.source,
        "tokens": index.tokens,
        **index.write(aside),
    }
    write_whole(aside / MANIFEST, json.dumps({**about, "seal": seal(about)}, indent=1))
    move_in(aside, path)


def move_in(aside: Path, path: Path, tries: int = 20) -> None:
    """Rename a folder; whatever is in its place is moved out of the way first, whole, so that of several processes that
    do this at once each either finds the place free or has moved something away itself.
    """
    for left in reversed(range(tries)):
        try:
            return os.rename(aside, path)
        except OSError as error:
            if not left or error.errno not in IN_THE_WAY:
                raise
        away = Path(tempfile.mkdtemp(prefix=ASIDE, dir=path.parent))
        with suppress(FileNotFoundError):  # another process was faster
            os.rename(path, away / MANIFEST)  # a folder, a file or a link
        shutil.rmtree(away, ignore_errors=True)


def seal(about: dict[str, Any]) -> str:
    """Over all else that a manifest says."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def load(path: Path, text: Text, model: str, device: torch.device) -> "Index":
    """The index at `path`, if it is that of this text and model, of the kind for its length, and as it was written."""
    from vcc.documents.index import kind_for  # imports transformers, which listing does not need

    about, kind = read_manifest(path), kind_for(text)
    written = about.pop("seal", None)
    expected = {"format": kind.format, "text": text.sha256, "model": model}
    for name, value in expected.items():
        if about.get(name) != value:
            raise DamagedError(f"{path}: its {name} is {about.get(name)!r}, not {value!r}")
    if written != seal(about):
        raise DamagedError(f"{path}: it is not what was written")
    try:
        return kind.load(path, about, text, device)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise DamagedError(f"{path}: {error}") from error


def is_good(path: Path, text: Text, model: str) -> bool:
    try:
        return load(path, text, model, torch.device("cpu")) is not None
    except DamagedError:
        return False


def read_manifest(path: Path) -> dict[str, Any]:
    try:
        if path.is_symlink():
            raise DamagedError(f"{path} is a link, not a folder")
        about = json.loads(open_file(path / MANIFEST, MANIFEST_LIMITS).data)
    except (OSError, ValueError, RecursionError, DocumentError) as error:
        raise DamagedError(f"{path}: {error}") from error
    if not isinstance(about, dict):
        raise DamagedError(f"{path}: {MANIFEST} is not an object")
    return about


def size_of(path: Path) -> int:
    """Of the files in a folder; what another process removes meanwhile is not counted."""
    size = 0
    with suppress(OSError), os.scandir(path) as files:
        for file in files:
            size += file.stat(follow_symlinks=False).st_size
    return size
