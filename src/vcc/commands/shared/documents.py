"""Shared by the commands on one document: options, opening the document, the progress bar, output files."""

import json as json_format
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn
from rich.text import Text as Styled

from vcc.documents.document import Document
from vcc.documents.formats.gate import DEFAULT_LIMITS, Limits
from vcc.documents.isolated import DEFAULT_MEMORY, DEFAULT_SECONDS, read_file_isolated
from vcc.documents.text import Text, normalise
from vcc.errors import UsageError
from vcc.files import write_whole
from vcc.printable import printable

if TYPE_CHECKING:
    from vcc.documents.answer import Reply
    from vcc.documents.facts import Facts

remarks = Console(stderr=True, highlight=False, soft_wrap=True)  # results go to standard output

File = Annotated[str, "a document (text, Markdown, HTML, PDF, DOCX, EPUB), a folder of them, or - for standard input"]
Model = Annotated[str | None, "folder of a wrapped question-answering model (default: the bundled model)"]
Top = Annotated[int, "maximum answers per question"]
Threshold = Annotated[float | None, "minimum score of an answer, 0 to 1 (default: the model's own)"]
Json = Annotated[bool, "print JSON"]
Page = Annotated[Path | None, "self-contained HTML page to write"]
NoCache = Annotated[bool, "do not use or store indexes on disk"]


@dataclass(frozen=True)
class ReadLimits:
    """Limits on reading files. Each file is read in its own process, so no file can exhaust memory or hang."""

    max_size: Annotated[float, "maximum file size in MB; limits on unpacked size and text scale with it"] = (
        DEFAULT_LIMITS.file_bytes / 1e6
    )
    max_nesting: Annotated[int, "maximum depth of nested folders, and of elements in DOCX and EPUB"] = (
        DEFAULT_LIMITS.nesting
    )
    seconds: Annotated[float, "maximum seconds to read one file"] = DEFAULT_SECONDS
    memory: Annotated[int, "maximum memory to read one file, in MiB"] = DEFAULT_MEMORY // 2**20

    def __post_init__(self) -> None:
        if not (math.isfinite(self.max_size) and self.max_size * 1e6 >= 1):
            raise UsageError(f"--max-size is {self.max_size}: it must be a number of MB above 0")
        if self.max_nesting < 1:
            raise UsageError(f"--max-nesting is {self.max_nesting}: it must be at least 1")
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise UsageError(f"--seconds is {self.seconds}: it must be above 0")
        if self.memory < 64:
            raise UsageError(f"--memory is {self.memory}: it must be at least 64 MiB")

    @property
    def limits(self) -> Limits:
        return replace(DEFAULT_LIMITS.for_files_of(int(self.max_size * 1e6)), nesting=self.max_nesting)

    @property
    def memory_bytes(self) -> int:
        return self.memory * 2**20


DEFAULT_READ_LIMITS = ReadLimits()


def read_file(file: str, reading: ReadLimits) -> Text:
    """The text of a file, read in its own process."""
    return read_file_isolated(file, reading.limits, reading.seconds, reading.memory_bytes, remark)


def open_document(
    file: str, model: str | None, no_cache: bool, reading: ReadLimits = DEFAULT_READ_LIMITS, shown: bool = False
) -> Document:
    """Read a file and index its text; `shown`: the caller will show what the layers opened."""
    text = read_file(file, reading)
    from vcc.documents.index import check_can_be_shown  # imports torch: problems with the file are reported before
    from vcc.documents.store import default_store

    if shown:
        check_can_be_shown(text)
    document = Document(text, model, None if no_cache else default_store(remark))
    with bar("reading", "tokens") as progress:
        document.read(progress=progress)
    return document


def answer(
    document: Document, questions: Sequence[str], top: int, threshold: float | None = None
) -> "tuple[tuple[Reply, ...], Facts]":
    """Ask a document, with a progress bar for several questions."""
    with bar("asking", "questions", len(questions) > 1) as progress:
        return document.answer(questions, top, threshold, progress=progress)


class Speed(ProgressColumn):
    """Tokens or questions a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Any) -> Styled:
        speed = task.finished_speed or task.speed or 0
        return Styled(f"{speed:,.{0 if speed > 10 else 1}f} {self.unit}/s" if speed else "", style="dim")


@contextmanager
def bar(doing: str, unit: str, wanted: bool = True) -> Iterator[Any]:
    """A progress bar, shown only on a terminal."""
    total = TextColumn(f"{{task.total:,.0f}} {unit}")
    columns = (TextColumn(doing), BarColumn(), TaskProgressColumn(), total, Speed(unit))
    with Progress(*columns, console=remarks, transient=True, disable=not (wanted and remarks.is_terminal)) as shown:
        task: list[Any] = []

        def progress(done: int, total: int) -> None:
            if not task:
                task.append(shown.add_task("", total=total))
            shown.update(task[0], completed=done)

        yield progress


def check_questions(questions: Sequence[str]) -> None:
    if not questions:
        raise UsageError("no question: ask at least one")
    for question in questions:
        if not normalise(question).strip():
            raise UsageError(f"question {question!r} has no words")
        if not question.isprintable() and any(0xD800 <= ord(letter) < 0xE000 for letter in question):
            raise UsageError(f"question {question!r} is not valid UTF-8")
        if any(ord(letter) < 0x20 and letter not in "\t\n\r" for letter in question):  # it would reach the terminal
            raise UsageError(f"question {question!r} has a control character")


def check_top(top: int) -> None:
    if top < 1:
        raise UsageError(f"--top is {top}: it must be at least 1")


def check_folder(*pages: Path | None) -> None:
    """Check output paths before reading anything."""
    for page in pages:
        if page is not None and page.is_dir():
            raise UsageError(f"{page} cannot be written: it is a folder")
        if page is not None and not page.parent.is_dir():
            raise UsageError(f"{page} cannot be written: there is no folder {page.parent}")


def print_json(values: dict[str, Any]) -> None:
    print(json_format.dumps(values, indent=1, ensure_ascii=False))


def write_page(path: Path, page: str) -> None:
    write_whole(path, page)
    wrote(path)


def wrote(path: Path) -> None:
    remark(f"wrote {path}")


def remark(text: str) -> None:
    """Print one line to standard error."""
    remarks.print(printable(text), markup=False)
