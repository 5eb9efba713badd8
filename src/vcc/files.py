"""Atomic writes, hashes, locks, permissions and the cache folder."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from vcc.errors import UsageError


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically: under a random name beside `path`, synced to disk, then renamed.

    A link is replaced, not followed. Anything but a regular file, such as a device, is never replaced. The file gets
    the user's default permissions.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} cannot be written: it exists and is not a regular file")
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
    """Sync a file, or the entries of a folder, to disk."""
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
    """Hold a lock. A second process waits or, with a `refusal`, gets that error. The system releases the lock when a
    process ends in any way."""
    try:
        import fcntl
    except ImportError:  # not available on this system
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
    """Close inherited locks in a forked process, such as a data loader: it would hold them for seconds after their
    owner was killed."""
    for file in _held:
        file.close()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def cache_folder() -> Path:
    """The user's cache folder by the XDG rule, which ignores relative paths."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "vcc"


def _umask() -> int:
    """The umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
