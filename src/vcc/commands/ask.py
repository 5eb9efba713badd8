"""`vcc ask`: ask a document, on the command line or at a prompt."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from rich.console import Console

from vcc.commands.shared.collection import ask_collection, current_collection, is_folder
from vcc.commands.shared.documents import (
    DEFAULT_READ_LIMITS,
    File,
    Json,
    Model,
    NoCache,
    Page,
    ReadLimits,
    Threshold,
    Top,
    answer,
    check_folder,
    check_questions,
    check_top,
    open_document,
    print_json,
    write_page,
)
from vcc.commands.shared.fleet import NO_FLEET, FleetOptions, job_of, run_fleet
from vcc.documents.answer import as_dict
from vcc.documents.document import Document
from vcc.documents.review_table import Question
from vcc.documents.show.report import report_html
from vcc.documents.show.terminal import print_answers, print_replies
from vcc.errors import UsageError
from vcc.printable import printable


def ask(
    file: File,
    question: Annotated[tuple[str, ...], "one or more questions; without any, a prompt opens"],
    top: Top = 3,
    threshold: Threshold = None,
    json: Json = False,
    html: Page = None,
    model: Model = None,
    no_cache: NoCache = False,
    documents: Annotated[int, "folder: number of documents to ask"] = 10,
    each: Annotated[bool, "ask every document of a folder, pattern, list or table separately; needs --out"] = False,
    out: Annotated[Path | None, "with --each: table to write (.parquet, .csv or .xlsx)"] = None,
    reading: ReadLimits = DEFAULT_READ_LIMITS,
    fleet: FleetOptions = NO_FLEET,
) -> None:
    """Answer questions about a document of any length, or about many.

    Of a folder, the documents that match best are asked; files that are new or changed are read first. With --html or
    --no-cache a folder is read as one text. With --each, every document is asked separately.
    """
    check_top(top)
    check_folder(html, out)
    if documents < 1:
        raise UsageError(f"--documents is {documents}: it must be at least 1")
    if each:
        check_questions(question)
        asked = [Question(one) for one in question]
        return run_fleet(job_of(asked, top, threshold, model, reading), [file], out, fleet)
    if fleet.named or out is not None:
        raise UsageError("--out and the many-documents options need --each")
    prompted = not question and not json and html is None and file != "-" and sys.stdin.isatty()
    if not prompted:
        check_questions(question)
    if is_folder(file) and not no_cache and html is None:
        collection = current_collection(file, model, reading)
        if prompted:
            print(f"{len(collection.catalogue):,} documents. An empty line quits.")
        for some in prompts() if prompted else [question]:
            ask_collection(collection, some, top, documents, json, model, reading, threshold)
        return None
    document = open_document(file, model, no_cache, reading)
    if prompted:
        return converse(document, top, threshold)
    replies, facts = answer(document, question, top, threshold)
    if html is not None:
        write_page(html, report_html(document.content, replies, facts.shown()))
    if json:
        print_json({**as_dict(document.content, replies), "facts": facts.as_dict()})
    else:
        print_replies(Console(highlight=False), document.content, replies, facts.shown())


def converse(document: Document, top: int, threshold: float | None) -> None:
    """Answer questions at a prompt until an empty line."""
    console = Console(highlight=False)
    console.print(
        f"{printable(document.title)}: {document.index().tokens:,} tokens. An empty line quits.", markup=False
    )
    for [question] in prompts():
        replies, facts = answer(document, [question], top, threshold)
        print_answers(console, document.content, replies[0])
        console.print(f"{facts.asking:.2f} s\n", style="dim")


def prompts() -> Iterator[tuple[str]]:
    """What is typed, question by question, until an empty line."""
    while question := prompt():
        yield (question,)


def prompt() -> str:
    try:
        return input("> ").strip()
    except EOFError:  # Ctrl-D
        return ""
