"""What a person can mend. Such an error's message is all that the person is shown: the value, and the rule it breaks.

Everything else that goes wrong is a bug of ours, and keeps its traceback.
"""

from vcc.printable import printable


class UsageError(ValueError):
    """It was asked wrongly: exit code 2."""


class Failure(Exception):
    """It was asked rightly and did not work: exit code 1."""


class DataError(UsageError):
    """Data that is missing or not in the format it should have."""


class ModelError(UsageError):
    """A model that cannot be loaded, or cannot do what is asked of it."""


class DocumentError(UsageError):
    """A file that cannot be read as a document: names the file and the rule it breaks."""

    def __init__(self, source: str, rule: str) -> None:
        self.source, self.rule = printable(source), printable(rule)  # a name may hold anything, even a line end
        super().__init__(f"{self.source}: {self.rule}")

    def __reduce__(self) -> tuple[type, tuple[str, str]]:  # so that it comes out of another process as it went in
        return type(self), (self.source, self.rule)


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out. Libraries say so by the class of the error, or in words only."""
    words = ("out of memory", "can't allocate memory", "not enough memory", "bad_alloc", "ALLOC_FAILED")
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # torch's
    return named or any(word in " ".join(str(error).split()) for word in words)
