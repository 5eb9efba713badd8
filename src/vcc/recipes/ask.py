"""`vcc ask`, and what all commands on a document share: opening it, its index, the bar, the files written."""

import json as json_format
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn
from rich.text import Text

from vcc.documents.answers import as_dict
from vcc.documents.document import Document, DocumentError
from vcc.documents.files import read_document
from vcc.documents.models import ModelError, load_asker
from vcc.documents.render import print_replies
from vcc.documents.report import report_html
from vcc.documents.store import default_store
from vcc.recipes.failures import UsageError

if TYPE_CHECKING:  # slow to import: a file that is not there is said at once
    from vcc.documents.asker import Asker, Index

errors = Console(stderr=True, highlight=False, soft_wrap=True)

File = Annotated[str, "text, Markdown, HTML, PDF, DOCX, EPUB, a folder of them, or - for standard input"]
Model = Annotated[str | None, "folder of a wrapped question-answering model; unless given, the one that comes along"]
Top = Annotated[int, "answers shown for each question, at most"]
Json = Annotated[bool, "print JSON for machines"]
Page = Annotated[Path | None, "write a page that stands alone to this file"]
NoCache = Annotated[bool, "neither use nor keep an index on disk"]


def ask(
    file: File,
    question: Annotated[tuple[str, ...], "what to ask; several questions are answered together"],
    top: Top = 3,
    json: Json = False,
    html: Page = None,
    model: Model = None,
    no_cache: NoCache = False,
) -> None:
    """Answer questions about a document of any length."""
    with asked_wrongly():
        check_questions(question)
        check_top(top)
        opened = open_document(file, model, no_cache)
        replies, facts = opened.asker.ask(opened.document, opened.index, question, top)
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
    """Tokens a second."""

    def render(self, task: Any) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} tokens/s" if speed else "", style="dim")


@contextmanager
def reading_bar() -> Iterator[Any]:
    """A bar while a document is read; in a file or a pipe, nothing."""
    total = TextColumn("{task.total:,.0f} tokens")
    columns = (TextColumn("reading"), BarColumn(), TaskProgressColumn(), total, Speed())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        shown: list[Any] = []

        def progress(done: int, total: int) -> None:
            if not shown:
                shown.append(bar.add_task("", total=total))
            bar.update(shown[0], completed=done)

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
