"""Out-of-memory errors that say what did not fit and what to try."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from vcc.errors import Failure, is_out_of_memory


class OutOfMemory(Failure):
    """The message names the length and batch that did not fit, and what to try."""


@contextmanager
def memory_advice(advice: Callable[[], str]) -> Iterator[None]:
    """Turn an out-of-memory error into one with advice, which is computed when needed."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(advice()) from error


def did_not_fit(length: int, together: int, tries: Sequence[str]) -> str:
    tries = ", or ".join([*tries, f"--length {length // 2}"])
    return f"out of memory: length {length} with {together} examples at a time did not fit. Try {tries}."
