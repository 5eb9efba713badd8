"""Indexes on disk, one folder each, named by the hashes of text and model.

A folder is written under a temporary name and renamed, so it is complete or absent, even if several processes write it
concurrently. Damaged indexes, and those of another text or model, are replaced. If nothing can be written, the document
is still read and the problem is reported.
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
    r"manifest\.json|index\.safetensors|ids|offsets|[a-z]+\.json|(means|differences|counts|positions)[.\d]*(steps)?"
)
MANIFEST_LIMITS = Limits(file_bytes=1_000_000)
IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
DAY = 24 * 3600.0
MOST_BYTES = 20_000_000_000  # of all indexes together; the least recently used go first


class DamagedError(Exception):
    """An index cannot be used; the message says why."""


class OtherFormatError(DamagedError):
    """An index was stored in another format."""


@dataclass(frozen=True)
class StoredIndex:
    """One index of the store, as listed."""

    path: Path
    title: str
    source: str
    tokens: int
    size: int  # bytes


def model_hash(asker: "Asker") -> str:
    """A hash of everything but the text that an index depends on: weights, settings, tokenizer. Weights in 32 bits
    count as rounded to 16, so a GPU that computes in these has the same. Few processors have instructions for SHA-256;
    on the others this one takes half the time.
    """
    digest = hashlib.blake2b(f"index, {type(asker.model).__name__}".encode(), digest_size=32)
    settings = {"vcc": asker.model.vcc.to_dict(), "config": asker.model.config.to_dict()}
    settings["config"].pop("_name_or_path", None)  # the folder of a model does not matter
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    tokenizer = json.loads(asker.tokenizer.backend_tokenizer.to_str())
    rules = {name: part for name, part in tokenizer.items() if name not in ("padding", "truncation")}  # change in use
    digest.update(json.dumps(rules, sort_keys=True).encode())
    for name, tensor in sorted(asker.model.state_dict().items()):
        values = tensor.detach().cpu()
        values = values.half() if values.dtype == torch.float32 else values
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(memoryview(values.contiguous().flatten().view(torch.uint8).numpy()))
    return digest.hexdigest()


@dataclass(frozen=True)
class Store:
    """The indexes in a folder; None: there is none. `tell` receives the reason if an index cannot be stored."""

    folder: Path | None
    tell: Callable[[str], None] = field(default=lambda problem: None, compare=False)
    most_bytes: int = MOST_BYTES

    def get(self, text: Text, asker: "Asker", progress: "Progress" = lambda done, total: None) -> "Index":
        """The text's index for this model: the stored one if it is valid, else a new one, which is stored."""
        if self.folder is None:
            self.tell("the index is not stored: there is no home folder, and XDG_CACHE_HOME is not set")
            return asker.index(text, progress)
        model = model_hash(asker)
        try:
            index = load(self.place(text.sha256, model), text, model, asker.model.device)
        except OtherFormatError:
            self.tell(f"the index of {text.title} was stored by another version of VCC; it is made again")
            return self._keep(text, model, lambda place: asker.index(text, progress, place))
        except DamagedError:
            return self._keep(text, model, lambda place: asker.index(text, progress, place))
        self.holds(index)  # mark it as used
        return index

    def holds(self, index: "Index") -> bool:
        """Whether an index is still stored, or never was; marks it as used."""
        try:
            if index.folder is not None:
                os.utime(index.folder)
        except FileNotFoundError:
            return False
        except OSError:  # not writable
            pass
        return True

    def renewed(self, index: "Index", text: Text, asker: "Asker", progress: "Progress") -> "Index":
        """Store an index again whose folder was removed: from memory, or by reading the text again."""
        from vcc.documents.index import MemoryIndex

        if isinstance(index, MemoryIndex) and self.folder is not None:
            return self._keep(text, model_hash(asker), lambda place: index)
        return self.get(text, asker, progress)

    def _keep(self, text: Text, model: str, read: "Callable[[TemporaryFolder | None], Index]") -> "Index":
        """Store an index; if it cannot be written, return it as it was read."""
        from vcc.documents.index import TemporaryFolder  # imports transformers, which listing does not need

        assert self.folder is not None
        index, path = None, self.place(text.sha256, model)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            aside = TemporaryFolder(self.folder, ASIDE)
            try:
                index = read(aside)
                if not is_good(path, text, model):  # another process may have been faster and be using its own
                    save(path, text, model, index, aside.path)
            except (OSError, SafetensorError):  # an index on disk is used where it is
                raise
            except BaseException:  # Ctrl-C too
                aside.remove()
                raise
            kept = index.kept_in(path)
            aside.remove()
            self.tidy(path)
            return kept
        except (OSError, SafetensorError) as error:  # a full disk, a read-only folder, ...
            self.tell(f"the index is not stored in {self.folder}: {error}")
            return index or read(None)

    def place(self, sha256: str, model: str) -> Path:
        assert self.folder is not None
        return self.folder / hashlib.sha256(f"{sha256} {model}".encode()).hexdigest()[:32]

    def entries(self) -> list[StoredIndex]:
        """All indexes by title, including damaged ones, which also take space."""
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
        """Remove remains of interrupted writes older than a day and, above the limit, the least recently used indexes;
        never `kept`.
        """
        by_age: list[tuple[float, Path, int]] = []
        for path in self._folders():
            with suppress(OSError):  # another process may do the same
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
        """Remove all indexes and remains of interrupted writes; return their number and bytes."""
        folders = list(self._folders())
        size = sum(map(size_of, folders))
        for path in folders:
            shutil.rmtree(path, ignore_errors=True)  # another process may do the same
        return len(folders), size

    def _folders(self) -> Iterator[Path]:
        """Only what this store made: the folder may contain other things."""
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
    except RuntimeError:  # no home folder
        return Store(None, tell)


def save(path: Path, text: Text, model: str, index: "Index", aside: Path) -> None:
    """Write an index to the folder `aside`, sync it to disk, and move it to `path` atomically."""
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
    """Rename a folder after moving away whatever is in its place. With several processes, each either finds the place
    free or has moved something away itself.
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
    """The hash of a manifest's other entries."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def load(path: Path, text: Text, model: str, device: torch.device) -> "Index":
    """The index at `path`, if it is undamaged, of this text and model, and of the kind for its length."""
    from vcc.documents.index import kind_for  # imports transformers, which listing does not need

    about, kind = read_manifest(path), kind_for(text)
    written = about.pop("seal", None)
    expected = {"format": kind.format, "text": text.sha256, "model": model}
    for name, value in expected.items():
        if about.get(name) != value:
            wrong = OtherFormatError if name == "format" and name in about else DamagedError
            raise wrong(f"{path}: its {name} is {about.get(name)!r}, not {value!r}")
    if written != seal(about):
        raise DamagedError(f"{path}: its content is not what was written")
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
    """The total size of the files in a folder, ignoring files removed meanwhile."""
    size = 0
    with suppress(OSError), os.scandir(path) as files:
        for file in files:
            size += file.stat(follow_symlinks=False).st_size
    return size
