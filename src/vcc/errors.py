"""Errors that a user can fix. The command line prints only their message: the value, and the rule it breaks.

Any other exception is a bug and is reported with its traceback.
"""

from vcc.printable import printable


class UsageError(ValueError):
    """A bad request: exit code 2."""


class Failure(Exception):
    """A valid request that failed: exit code 1."""


class DataError(UsageError):
    """Data that is missing or in the wrong format."""


class ModelError(UsageError):
    """A model that cannot be loaded, or cannot do the task."""


class DocumentError(UsageError):
    """A file that cannot be read as a document: the file and the rule it breaks."""

    def __init__(self, source: str, rule: str) -> None:
        self.source, self.rule = printable(source), printable(rule)  # a name may contain any character
        super().__init__(f"{self.source}: {self.rule}")

    def __reduce__(self) -> tuple[type, tuple[str, str]]:  # so it can be pickled between processes
        return type(self), (self.source, self.rule)


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out. Libraries use the class of the error, or only its message."""
    words = ("out of memory", "can't allocate memory", "not enough memory", "bad_alloc", "ALLOC_FAILED")
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # torch's
    return named or any(word in " ".join(str(error).split()) for word in words)
