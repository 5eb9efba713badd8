"""Read a file in a separate process with a deadline and a memory cap: a hostile file can crash only that process.

The children import no torch, so a parent that holds a model, perhaps on a GPU, can have some at little cost. They are
started afresh, never forked, kept for the next file, and replaced after a failure. A child sends back JSON: even one
that a file has taken over cannot run code in the parent. It has nothing of the parent's environment, and where the
system can forbid it, no network, no writing, and no files but those of Python and the system's libraries
(`vcc.documents.sandbox`).
"""

import atexit
import json
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from vcc.child_process import READY, ChildProcess, answer_to, started
from vcc.documents import sandbox
from vcc.documents.formats.gate import File, Limits
from vcc.documents.formats.read import read_data, read_text, text_of
from vcc.documents.text import Text
from vcc.documents.text_json import text_from_values, text_to_json
from vcc.errors import DocumentError, Failure, is_out_of_memory

Kind = Literal["crash", "hang", "memory"]
OUT_OF_MEMORY = b'{"memory": true}'
STARTING = 120  # seconds a child may take to start, on a busy machine
LIBRARIES = ("pypdfium2", "markdown_it")  # imported, if installed, before the memory cap applies
DEFAULT_SECONDS = 120.0
DEFAULT_MEMORY = 2**31  # bytes
MORE = {"hang": ": --seconds allows more, seconds= in Python", "memory": ": --memory allows more"}
OPEN_FILES = 64
COPIES = 16  # of a large text, as bytes and characters, that reading may hold in memory


class ReadingError(DocumentError):
    """A file made its reader crash, time out or run out of memory; `kind` says which."""

    def __init__(self, source: str, rule: str, kind: Kind) -> None:
        super().__init__(source, rule)
        self.kind = kind


class NoProcessError(Failure):
    """A process could not be started."""


def read_file_isolated(
    path: str | Path,
    limits: Limits,
    seconds: float = DEFAULT_SECONDS,
    memory: int = DEFAULT_MEMORY,
    tell: Callable[[str], None] = warnings.warn,
) -> Text:
    """The text of a file, of standard input ("-") or of a folder; each file may take `seconds`.

    A file may use `memory` bytes, a large one more. If no process can be started, files are read in this one, and
    `tell` receives the reason.
    """

    def read(file: File) -> Text:
        try:
            return read_isolated_or_here(file, seconds, memory, tell)
        except ReadingError as error:
            raise ReadingError(error.source, error.rule + MORE.get(error.kind, ""), error.kind) from error

    return read_text(path, limits, read)


def read_isolated_or_here(file: File, seconds: float, memory: int, tell: Callable[[str], None]) -> Text:
    """Like `read_isolated`, with more memory for a large file; if no process can be started, it is read here."""
    try:
        return read_isolated(file.data, file.source, file.limits, seconds, max(memory, COPIES * len(file.data)))
    except NoProcessError as error:
        tell(f"{file.source} is read in this process, without a deadline: {error}")
        return text_of(file)


def read_isolated(data: bytes, name: str, limits: Limits, seconds: float, memory: int) -> Text:
    """The text of a file's bytes; `name` is its path, or its name in messages.

    Reading may take `seconds`, and `memory` bytes beyond what the process needs to start. An unreadable file raises a
    `DocumentError`; one that crashes its reader, a `ReadingError`.
    """
    child = _take()
    try:
        answer = child.read(data, name, limits, seconds, memory)
    except BaseException:  # Ctrl-C too: the pipe may hold half an answer
        child.end()
        raise
    _idle.append(child)
    if "rule" in answer:
        raise DocumentError(answer["source"], answer["rule"])
    return text_from_values(answer)


class Child(ChildProcess):
    """One reading process."""

    def __init__(self) -> None:
        super().__init__("vcc.documents.isolated", "serve", STARTING, bare=True)
        self.open_doors: tuple[str, ...] = ()  # what the system could not forbid it

    def wait_until_ready(self) -> None:
        if not self.ready:
            super().wait_until_ready()
            self.open_doors = tuple(json.loads(self.line.recv_bytes()))

    def read(self, data: bytes, name: str, limits: Limits, seconds: float, memory: int) -> dict[str, Any]:
        """A file's text, or the reason why it cannot be read."""
        self.wait_until_ready()  # does not count towards the file's time
        late = threading.Event()

        def stop() -> None:
            late.set()
            self.process.kill()

        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            self.line.send_bytes(pickle.dumps((name, limits, seconds, memory)))
            self.line.send_bytes(data)
            answer = json.loads(self.line.recv_bytes())
        except (EOFError, OSError) as error:
            code = self.process.wait()
            if late.is_set() or code == -signal.SIGALRM:
                raise ReadingError(name, f"could not be read within {seconds:g} seconds", "hang") from error
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise ReadingError(name, f"crashed its reader ({how})", "crash") from error
        finally:
            timer.cancel()
        if "memory" in answer:
            raise ReadingError(name, f"needs more than {memory / 2**20:,.0f} MiB of memory to be read", "memory")
        return answer


_idle: list[Child] = []  # append and pop are thread-safe


def _take() -> Child:
    """An idle child, or a new one."""
    while _idle:
        try:
            child = _idle.pop()
        except IndexError:  # another thread was faster
            break
        if child.process.poll() is None:
            return child
        child.end()
    try:
        return started(Child)
    except (OSError, ValueError, Failure) as error:  # ValueError: the system cannot pass file descriptors
        raise NoProcessError(f"no process could be started to read files ({error})") from error


def open_doors() -> tuple[str, ...]:
    """What this system cannot forbid a process that reads files."""
    child = _take()
    _idle.append(child)
    return child.open_doors


def end_children() -> None:
    """End all idle children; the next file starts a new one."""
    while _idle:
        _idle.pop().end()


atexit.register(end_children)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # processes cannot share a child


def serve(number: int) -> None:
    """The child's loop: read files from file descriptor `number` and answer, until the parent is gone."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    for library in LIBRARIES:
        with suppress(ImportError):
            import_module(library)
    base = _address_space()
    with answer_to(number) as line:
        open_doors = sandbox.enter(sys.path)
        line.send_bytes(READY)
        line.send_bytes(json.dumps(open_doors).encode())
        while True:
            try:
                name, limits, seconds, memory = pickle.loads(line.recv_bytes())
                data = line.recv_bytes()
            except EOFError:
                return
            # The parent kills a late child. If the parent itself was killed, this timer's signal ends the child, even
            # inside a library.
            signal.setitimer(signal.ITIMER_REAL, seconds)
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (base + memory, hard))
            answer = _answer(data, name, limits)
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
            line.send_bytes(answer)
            signal.setitimer(signal.ITIMER_REAL, 0)
            if answer == OUT_OF_MEMORY:  # its state is unknown
                return


def _answer(data: bytes, name: str, limits: Limits) -> bytes:
    try:
        text = read_data(data, name, limits)
        return text_to_json(text).encode()
    except DocumentError as error:
        if _out_of_memory(error):
            return OUT_OF_MEMORY
        return json.dumps({"source": error.source, "rule": error.rule}).encode()
    except Exception as error:
        if _out_of_memory(error):
            return OUT_OF_MEMORY
        return json.dumps({"source": name, "rule": f"cannot be read ({type(error).__name__}: {error})"}).encode()


def _out_of_memory(error: BaseException | None) -> bool:
    """Whether it was caused by lack of memory: format readers report any library error as a broken file."""
    while error is not None:
        unloaded = "failed to map segment" in str(error)  # of a library imported just now
        if unloaded or (isinstance(error, Exception) and is_out_of_memory(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _address_space() -> int:
    """The address space of this process in bytes, which RLIMIT_AS limits; 0 if unknown."""
    import resource

    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0
