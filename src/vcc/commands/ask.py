"""`vcc ask`, and what all commands on a document share: opening it, its index, the bar, the files written."""

import json as json_format
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn
from rich.text import Text

from vcc.documents.answers import as_dict
from vcc.documents.formats.read import read_document
from vcc.documents.shipped import load_asker
from vcc.documents.show.report import report_html
from vcc.documents.show.terminal import print_answers, print_replies
from vcc.documents.store import default_store
from vcc.documents.text import Document
from vcc.errors import DocumentError, ModelError, UsageError

if TYPE_CHECKING:  # slow to import: a file that is not there is said at once
    from vcc.documents.answers import Reply
    from vcc.documents.asker import Asker, Facts, Index

errors = Console(stderr=True, highlight=False, soft_wrap=True)

File = Annotated[str, "text, Markdown, HTML, PDF, DOCX, EPUB, a folder of them, or - for standard input"]
Model = Annotated[str | None, "folder of a wrapped question-answering model; unless given, the one that comes along"]
Top = Annotated[int, "answers shown for each question, at most"]
Lead = Annotated[float | None, "how far an answer must lead over no answer, in logits; unless given, as the model says"]
Json = Annotated[bool, "print JSON for machines"]
Page = Annotated[Path | None, "write a page that stands alone to this file"]
NoCache = Annotated[bool, "neither use nor keep an index on disk"]


def ask(
    file: File,
    question: Annotated[tuple[str, ...], "what to ask; several are answered together; none: you are prompted for them"],
    top: Top = 3,
    lead: Lead = None,
    json: Json = False,
    html: Page = None,
    model: Model = None,
    no_cache: NoCache = False,
) -> None:
    """Answer questions about a document of any length."""
    with asked_wrongly():
        check_top(top)
        check_folder(html)
        prompted = not question and not json and html is None and file != "-" and sys.stdin.isatty()
        if not prompted:
            check_questions(question)
        opened = open_document(file, model, no_cache)
        if prompted:
            return converse(opened, top, lead)
        replies, facts = opened.ask(question, top, lead)
    if html is not None:
        write_page(html, report_html(opened.document, replies, facts.shown()))
    if json:
        print_json({**as_dict(opened.document, replies), "facts": facts.as_dict()})
    else:
        print_replies(Console(highlight=False), opened.document, replies, facts.shown())


@dataclass(frozen=True)
class Opened:
    """A document, who asks it, and how it was read."""

    document: Document
    asker: "Asker"
    index: "Index"

    def ask(self, questions: Sequence[str], top: int, lead: float | None = None) -> "tuple[tuple[Reply, ...], Facts]":
        with bar("asking", "questions", len(questions) > 1) as progress:
            return self.asker.ask(self.document, self.index, questions, top, progress, lead)


def converse(opened: Opened, top: int, lead: float | None) -> None:
    """One question after the other until an empty line: the model is loaded once."""
    console = Console(highlight=False)
    console.print(f"{opened.document.title}: {opened.index.tokens:,} tokens. An empty line ends.", markup=False)
    while question := prompt():
        replies, facts = opened.ask([question], top, lead)
        print_answers(console, opened.document, replies[0])
        console.print(f"{facts.asking:.2f} s\n", style="dim")


def prompt() -> str:
    try:
        return input("> ").strip()
    except EOFError:  # Ctrl-D
        return ""


@contextmanager
def asked_wrongly() -> Iterator[None]:
    """A file or a model that cannot be used is a wrong command line: exit code 2."""
    try:
        yield
    except (DocumentError, ModelError) as error:
        raise UsageError(str(error)) from error


def open_document(file: str, model: str | None, no_cache: bool) -> Opened:
    """The document first: a file that cannot be read is known before a model is loaded."""
    document = read_document(file)
    asker = load_asker(model)
    with reading_bar() as progress:
        if no_cache:
            return Opened(document, asker, asker.index(document, progress))
        return Opened(document, asker, default_store().get(document, asker, progress))


class Speed(ProgressColumn):
    """Tokens or questions a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Any) -> Text:
        speed = task.finished_speed or task.speed or 0
        return Text(f"{speed:,.{0 if speed > 10 else 1}f} {self.unit}/s" if speed else "", style="dim")


def reading_bar() -> AbstractContextManager[Any]:
    return bar("reading", "tokens")


@contextmanager
def bar(doing: str, unit: str, wanted: bool = True) -> Iterator[Any]:
    """A bar while a document is read or asked; in a file or a pipe, nothing."""
    total = TextColumn(f"{{task.total:,.0f}} {unit}")
    columns = (TextColumn(doing), BarColumn(), TaskProgressColumn(), total, Speed(unit))
    with Progress(*columns, console=errors, transient=True, disable=not (wanted and errors.is_terminal)) as shown:
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
        if not question.strip():
            raise UsageError(f"question {question!r} holds no word")


def check_top(top: int) -> None:
    if top < 1:
        raise UsageError(f"--top is {top}: it must be at least 1")


def check_folder(*pages: Path | None) -> None:
    """Before anything is read: minutes later would be too late."""
    for page in pages:
        if page is not None and not page.parent.is_dir():
            raise UsageError(f"{page} cannot be written: there is no folder {page.parent}")


def print_json(values: dict[str, Any]) -> None:
    print(json_format.dumps(values, indent=1, ensure_ascii=False))


def write_page(path: Path, text: str) -> None:
    """Whole or not at all."""
    aside = path.with_name(f".{path.name}.writing")
    try:
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    wrote(path)


def wrote(path: Path) -> None:
    errors.print(f"wrote {path}", markup=False)
