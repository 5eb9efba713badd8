"""Access to the model, one user at a time: questions, which users wait for, go before reading documents."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]


class Turns:
    """A lock with two priorities. Patient work yields between its steps while urgent work waits."""

    def __init__(self) -> None:
        self.free = threading.Condition()
        self.taken = False
        self.waiting = 0  # urgent callers

    @contextmanager
    def urgent(self) -> Iterator[None]:
        with self.free:
            self.waiting += 1
            self.free.wait_for(lambda: not self.taken)
            self.waiting -= 1
            self.taken = True
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def patient(self, told: Progress = lambda done, total: None) -> Iterator[Progress]:
        """Yields a progress function to call between steps."""
        self._enter_patiently()

        def step(done: int, total: int) -> None:
            told(done, total)
            if self.waiting:
                self._leave()
                self._enter_patiently()

        try:
            yield step
        finally:
            self._leave()

    def _enter_patiently(self) -> None:
        with self.free:
            self.free.wait_for(lambda: not self.taken and not self.waiting)
            self.taken = True

    def _leave(self) -> None:
        with self.free:
            self.taken = False
            self.free.notify_all()
