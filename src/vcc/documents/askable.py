"""What forms and verdicts need of a `Document`, which itself offers them: a protocol keeps the imports one-way."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from vcc.documents.answer import Reply
from vcc.documents.text import Text

if TYPE_CHECKING:
    from vcc.documents.asker import Asker
    from vcc.documents.index import Index

Got = TypeVar("Got")


class Askable(Protocol):
    """A text with a model that answers questions about it."""

    model: str | None

    @property
    def content(self) -> Text: ...

    @property
    def text(self) -> str: ...

    def sentence_around(self, start: int, end: int) -> tuple[int, int]: ...

    def asker(self, model: str | None = None) -> "Asker": ...

    def ask_all(
        self, questions: Sequence[str], top: int = 3, threshold: float | None = None, model: str | None = None
    ) -> tuple[Reply, ...]: ...

    def with_index(self, model: str | None, work: "Callable[[Index], Got]") -> Got: ...
