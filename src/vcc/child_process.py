"""Child processes, spawned and never forked: if one dies, the parent is informed and continues."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from vcc.errors import Failure

READY = b"ready"
STARTS = 3
NEEDED = ("PATH", "LANG", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TZ")
START = "import sys; sys.path[:] = {path!r}; from {module} import {function}; {function}({line})"


def bare_environment() -> dict[str, str]:
    """What Python needs to start, and nothing else: no token, no key, no proxy."""
    return {name: value for name, value in os.environ.items() if name in NEEDED or name.startswith(("PYTHON", "LC_"))}


class OwnProcess:
    """A command in a separate process, without input. It ignores Ctrl-C, which the parent handles."""

    def __init__(
        self,
        command: Sequence[str],
        stdout: Any = subprocess.DEVNULL,
        stderr: Any = subprocess.DEVNULL,
        environment: Mapping[str, str] | None = None,  # added to the parent's
        descriptors: Sequence[int] = (),  # that it inherits
        bare: bool = False,  # of the parent's environment, take only what Python needs to start
    ) -> None:
        self.process = subprocess.Popen(
            command,
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**(bare_environment() if bare else os.environ), **(environment or {})},
            start_new_session=True,
        )

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self.process.poll()

    def how_it_ended(self, seconds: float = 10) -> str:
        """How the process ended, in words."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        code = self.process.returncode
        if code is None:
            return "has not ended"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def finish(self, seconds: float = 10) -> None:
        """Terminate it, and kill it if it does not end."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.end()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class ChildProcess(OwnProcess):
    """Runs `function(number)` of `module`; number is the file descriptor of its connection (`answer_to`).

    It sends `READY` within `starting` seconds. When its parent is gone, the connection closes.
    """

    def __init__(
        self,
        module: str,
        function: str,
        starting: float,
        stdout: Any = subprocess.DEVNULL,
        stderr: Any = subprocess.DEVNULL,
        environment: Mapping[str, str] | None = None,
        bare: bool = False,
    ) -> None:
        self.name, self.starting, self.ready = f"{module}.{function}", starting, False
        self.line, theirs = Pipe()
        with theirs:
            number = theirs.fileno()
            program = START.format(path=sys.path, module=module, function=function, line=number)
            super().__init__([sys.executable, "-c", program], stdout, stderr, environment, [number], bare)

    def wait_until_ready(self) -> None:
        if not self.ready:
            with suppress(EOFError, OSError):
                self.ready = self.line.poll(self.starting) and self.line.recv_bytes() == READY
            if not self.ready:
                ended = self.code
                how = f"did not start within {self.starting:g} seconds" if ended is None else f"ended early ({ended})"
                raise Failure(f"a process ({self.name}) {how}")

    def finish(self, seconds: float = 10) -> None:
        """Close the connection and wait for it to end; kill it if it does not."""
        self.line.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.end()

    def end(self) -> None:
        super().end()
        self.line.close()


AnyChild = TypeVar("AnyChild", bound=ChildProcess)


def started(make: Callable[[], AnyChild]) -> AnyChild:
    """Return a new process that is ready. If one is killed before it has any work, another is started: the work is not
    to blame."""
    for attempt in count(1):
        child = make()
        try:
            child.wait_until_ready()
            break
        except BaseException as error:  # Ctrl-C too
            child.end()
            if attempt == STARTS or not isinstance(error, Failure):
                raise
    return child


def answer_to(number: int) -> Connection:
    """A child's end of the connection."""
    return Connection(number)


def heard_from(line: Connection) -> "SimpleQueue[bytes]":
    """The messages to a child. A thread listens: when the parent is gone, it ends this process, even if busy."""
    heard: SimpleQueue[bytes] = SimpleQueue()

    def listen() -> None:
        while True:
            try:
                heard.put(line.recv_bytes())
            except (EOFError, OSError):
                os._exit(1)

    Thread(target=listen, daemon=True).start()
    return heard
