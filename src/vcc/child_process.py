"""A process of our own, started afresh and never forked, with a line to it: it may die, and the parent learns of it."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeVar

from vcc.errors import Failure

READY = b"ready"
STARTS = 3
START = "import sys; sys.path[:] = {path!r}; from {module} import {function}; {function}({line})"


class ChildProcess:
    """Runs `function(number)` of `module`, number being the file descriptor of its end of the line (`answer_to`).

    It says `READY` when it is, within `starting` seconds. When its parent is gone, its line ends.
    """

    def __init__(self, module: str, function: str, starting: float, stderr: Any = subprocess.DEVNULL) -> None:
        self.name, self.starting, self.ready = f"{module}.{function}", starting, False
        self.line, theirs = Pipe()
        program = START.format(path=sys.path, module=module, function=function, line=theirs.fileno())
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is the parent's to deal with
            )

    def wait_until_ready(self) -> None:
        if not self.ready:
            with suppress(EOFError, OSError):
                self.ready = self.line.poll(self.starting) and self.line.recv_bytes() == READY
            if not self.ready:
                ended = self.process.poll()
                how = f"did not start within {self.starting:g} seconds" if ended is None else f"ended at once ({ended})"
                raise Failure(f"a process ({self.name}) {how}")

    def finish(self, seconds: float = 10) -> None:
        """Hang up, and let it end by itself; it is made to if it does not."""
        self.line.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.end()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.line.close()


AnyChild = TypeVar("AnyChild", bound=ChildProcess)


def started(make: Callable[[], AnyChild]) -> AnyChild:
    """A new process, ready. What kills one that has had nothing to do yet is not on the account of what it was to do:
    another is started."""
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
    """A child's end of the line."""
    return Connection(number)
