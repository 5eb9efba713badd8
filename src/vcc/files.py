"""Files that are whole or absent, whatever is interrupted, their hashes, who may write, and where caches are."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from vcc.errors import UsageError


def write_whole(path: Path, content: str | bytes) -> None:
    """Write under a new random name beside `path`, force it to disk, and let it take the place in one step.

    A link to a file is replaced, not followed. What is no file, such as a device, is never replaced. The file gets the
    permissions that any new file of the user gets.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} cannot be written: it is there, and not a regular file")
    data = content.encode("utf-8") if isinstance(content, str) else content
    descriptor, aside = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o666 & ~_umask())
        os.replace(aside, path)
    except BaseException:  # Ctrl-C too
        Path(aside).unlink(missing_ok=True)
        raise


def force(path: Path) -> None:
    """Let what was written to a file, or which files a folder holds, reach the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def one_at_a_time(lock: Path, refusal: Exception | None = None) -> Iterator[None]:
    """Whoever comes second waits for the first or, with a `refusal`, is refused. The system lets go of the lock however
    a process ends."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield
        return
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError as error:
            raise refusal or error from error
        _held.add(file)
        try:
            yield
        finally:
            _held.discard(file)


_held: set[IO[str]] = set()


def _let_go() -> None:
    """In a forked process, such as one that loads data: it inherits locks, and would hold them for seconds after the
    process that took them was killed."""
    for file in _held:
        file.close()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def cache_folder() -> Path:
    """Where the user's caches are, by the XDG rule: a relative path there does not count."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "vcc"


def _umask() -> int:
    """There is no way to ask for it but to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
