"""`vcc review`: find clauses, or answers to your own questions, in one or many contracts."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from vcc.commands.shared.documents import (
    DEFAULT_READ_LIMITS,
    Json,
    Model,
    NoCache,
    Page,
    ReadLimits,
    bar,
    check_folder,
    check_top,
    open_document,
    print_json,
    write_page,
    wrote,
)
from vcc.commands.shared.fleet import NO_FLEET, FleetOptions, job_of, print_skipped, review_here, run_fleet
from vcc.documents.answer import Reply, as_dict
from vcc.documents.document import Document
from vcc.documents.facts import Facts
from vcc.documents.question_list import CLAUSE_QUESTIONS, read_questions
from vcc.documents.review_table import Question, ReviewTable, row_of
from vcc.documents.reviewing import ask_list
from vcc.documents.show.report import report_html
from vcc.documents.show.spreadsheet import check_spreadsheet, write_spreadsheet
from vcc.documents.show.terminal import print_review, print_table
from vcc.errors import Failure, UsageError

if TYPE_CHECKING:
    from vcc.fleet.sources import Item

Files = Annotated[tuple[str, ...], "contracts (text, Markdown, HTML, PDF, DOCX, EPUB), folders, - for standard input"]


def review(
    file: Files,
    questions: Annotated[Path | None, "your own questions (.yaml or .csv) instead of the 41 clauses"] = None,
    out: Annotated[Path | None, "table to write: .xlsx or .csv (one row per contract) or .parquet"] = None,
    top: Annotated[int | None, "maximum answers per question (default: as many as the contract has)"] = None,
    thorough: Annotated[
        bool, "read every window of a contract with every question: three to seven times slower, finds a little more"
    ] = False,
    json: Json = False,
    html: Page = None,
    model: Model = None,
    no_cache: NoCache = False,
    reading: ReadLimits = DEFAULT_READ_LIMITS,
    fleet: FleetOptions = NO_FLEET,
) -> None:
    """Find CUAD's 41 kinds of clauses, or answers to your own questions, in one or many contracts.

    One contract gives a table and a page with the whole text, NAME.review.html in the current folder unless --html
    names another file. With --json or --out, the page is written only with --html. Several contracts or a folder give
    one table: a row per contract, a column per question. --out writes it as a spreadsheet, with sentences as comments.

    For thousands of contracts, use the many-documents options below. A stopped run resumes when started again, and new
    contracts can be added to it.
    """
    if top is not None:
        check_top(top)
    check_folder(html, out)
    asked = CLAUSE_QUESTIONS if questions is None else read_questions(questions)
    if fleet.wanted(file, out):
        return run_fleet(job_of(asked, top, None, model, reading, thorough=thorough), file, out, fleet)
    if out is not None:
        check_spreadsheet(out)
    if not file:
        raise UsageError("no contract: name at least one file or folder")
    if len(file) == 1 and not os.path.isdir(file[0]):
        table = review_with_page(file[0], asked, top, thorough, json, html, out, model, no_cache, reading)
    elif html is not None:
        raise UsageError(f"--html is {html}: a page shows one contract; use --out for several")
    else:
        from vcc.documents.store import default_store

        store = None if no_cache else default_store().folder
        job = job_of(asked, top, None, model, reading, "" if store is None else str(store), thorough)
        table = review_here(job, contracts(file, reading))
        if json:
            print_json(table.as_dict())
        else:
            print_table(Console(highlight=False), table)
    if out is not None:
        write_spreadsheet(out, table)
        wrote(out)
    failed = [row.document for row in table.rows if row.error]
    if len(failed) == len(table.rows):
        raise Failure("no contract could be read")
    if named := [name for name in failed if name in file]:  # files found in a folder do not count
        raise Failure(f"{len(named)} of {len(file)} could not be read: {', '.join(named[:3])}")


def review_with_page(
    file: str,
    asked: Sequence[Question],
    top: int | None,
    thorough: bool,
    json: bool,
    html: Path | None,
    out: Path | None,
    model: str | None,
    no_cache: bool,
    reading: ReadLimits,
) -> ReviewTable:
    """Review one contract on the terminal and as a page with its whole text."""
    document = open_document(file, model, no_cache, reading)
    replies, facts = replies_of(document, asked, top, thorough)
    if html is None and out is None and not json:
        html = Path("document.review.html" if file == "-" else f"{Path(file).resolve().stem}.review.html")
    if html is not None:
        write_page(html, report_html(document.content, replies, facts.shown()))
    if json:
        print_json({**as_dict(document.content, replies), "facts": facts.as_dict()})
    else:
        print_review(Console(highlight=False), document.content, replies, facts.shown())
    return ReviewTable(tuple(asked), (row_of(document.content, replies, file),))


def replies_of(
    document: Document, asked: Sequence[Question], top: int | None, thorough: bool
) -> tuple[list[Reply], Facts]:
    with bar("asking", "questions", len(asked) > 1) as progress:
        return ask_list(document, asked, top, progress, thorough=thorough)


def contracts(files: Sequence[str], reading: ReadLimits) -> "list[Item]":
    """The contracts with the names of their rows: the path as given, or for a folder the path inside it. A missing file
    is included: its row shows the error."""
    from vcc.fleet.sources import Item, find_items

    found: dict[str, Item] = {}
    for file in files:
        if not os.path.isdir(file):
            found[file] = Item(file, file, 0, "")
            continue
        listing = find_items([file], limits=reading.limits)
        print_skipped(listing.skipped)
        for item in listing.items:
            name = item.name if item.name not in found or found[item.name] == item else f"{file}/{item.name}"
            found[name] = replace(item, name=name)
    return list(found.values())
