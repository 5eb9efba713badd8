"""`vcc review`: the clauses a lawyer looks for, or the reader's own questions, in one contract or in many."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console

from vcc.commands.documents import (
    AS_USUAL,
    Json,
    Model,
    Most,
    NoCache,
    Page,
    Top,
    bar,
    check_folder,
    check_top,
    open_document,
    print_json,
    remarks,
    write_page,
    wrote,
)
from vcc.commands.fleet import ALONE, Fleet, job_of, run_fleet
from vcc.documents.answer import Reply, as_dict
from vcc.documents.document import Document
from vcc.documents.facts import Facts
from vcc.documents.formats.read import documents_in, suffixes
from vcc.documents.question_list import CLAUSE_QUESTIONS, read_questions
from vcc.documents.review_table import Question, ReviewRow, ReviewTable, row_of
from vcc.documents.reviewing import ask_list
from vcc.documents.show.report import report_html
from vcc.documents.show.spreadsheet import check_spreadsheet, write_spreadsheet
from vcc.documents.show.terminal import print_review, print_table
from vcc.errors import DocumentError, Failure, UsageError

Files = Annotated[tuple[str, ...], "contracts: text, Markdown, HTML, PDF, DOCX, EPUB, - for standard input, or folders"]


def review(
    file: Files,
    questions: Annotated[Path | None, "your own questions, as .yaml or .csv, instead of the 41 clauses"] = None,
    out: Annotated[Path | None, "write a table to this file: .xlsx or .csv, a row a contract; or .parquet"] = None,
    top: Top = 1,
    json: Json = False,
    html: Page = None,
    model: Model = None,
    no_cache: NoCache = False,
    most: Most = AS_USUAL,
    fleet: Fleet = ALONE,
) -> None:
    """Find the 41 kinds of clauses of CUAD, or answers to your own questions, in one contract or in many.

    One contract becomes a table and a page beside the whole text: unless --html names another file, it is written to
    the current folder as NAME.review.html; with --json or --out, only where --html asks for it. Several contracts, or
    a folder of them, become one table: a row for each contract, a column for each question. --out keeps it as a
    spreadsheet with the sentences as comments.

    A hundred thousand contracts are work for many processes: any option of "many documents" below sets them to it. A
    run that was stopped goes on where it was, and one with more contracts does the new ones.
    """
    check_top(top)
    check_folder(html, out)
    asked = CLAUSE_QUESTIONS if questions is None else read_questions(questions)
    if fleet.wanted(file, out):
        return run_fleet(job_of(asked, top, None, model, most, fleet), file, out, fleet)
    if out is not None:
        check_spreadsheet(out)
    if not file:
        raise UsageError("no contract: name at least one file or folder")
    if len(file) == 1 and not Path(file[0]).is_dir():
        table = review_one(file[0], asked, top, json, html, out, model, no_cache, most)
    elif html is not None:
        raise UsageError(f"--html is {html}: a page shows one contract; --out keeps the table of several")
    else:
        rows = list(review_many(list(contracts(file, most)), asked, top, model, no_cache, most))
        table = ReviewTable(asked, tuple(rows))
        if json:
            print_json(table.as_dict())
        else:
            print_table(Console(highlight=False), table)
    if out is not None:
        write_spreadsheet(out, table)
        wrote(out)
    if all(row.error for row in table.rows):
        raise Failure("no contract could be read")


def review_one(
    file: str,
    asked: Sequence[Question],
    top: int,
    json: bool,
    html: Path | None,
    out: Path | None,
    model: str | None,
    no_cache: bool,
    most: Most,
) -> ReviewTable:
    """One contract: on the terminal, and as a page."""
    document = open_document(file, model, no_cache, most)
    replies, facts = replies_of(document, asked, top)
    if html is None and out is None and not json:
        html = Path("document.review.html" if file == "-" else f"{Path(file).resolve().stem}.review.html")
    if html is not None:
        write_page(html, report_html(document.content, replies, facts.shown()))
    if json:
        print_json({**as_dict(document.content, replies), "facts": facts.as_dict()})
    else:
        print_review(Console(highlight=False), document.content, replies, facts.shown())
    return ReviewTable(tuple(asked), (row_of(document.content, replies, file),))


def review_many(
    files: Sequence[tuple[str, str]],
    asked: Sequence[Question],
    top: int,
    model: str | None,
    no_cache: bool,
    most: Most,
) -> Iterator[ReviewRow]:
    """A row for each (path, name); one that cannot be read says why and stops nothing."""
    for number, (path, name) in enumerate(files, 1):
        remarks.print(f"{number} of {len(files)}: {name}", markup=False, style="dim")
        try:
            document = open_document(path, model, no_cache, most)
            replies, _ = replies_of(document, asked, top)
        except DocumentError as error:
            yield ReviewRow(name, error=error.rule)
        else:
            yield row_of(document.content, replies, name)


def replies_of(document: Document, asked: Sequence[Question], top: int) -> tuple[list[Reply], Facts]:
    with bar("asking", "questions", len(asked) > 1) as progress:
        return ask_list(document, asked, top, progress)


def contracts(files: Sequence[str], most: Most) -> Iterator[tuple[str, str]]:
    """Each contract's path and the name of its row: the path as given, or for those of a folder as it is inside it."""
    for file in files:
        if file == "-" or not Path(file).is_dir():
            yield file, file
            continue
        found = []
        for path, problem in documents_in(Path(file), most.limits):
            if problem:
                remarks.print(f"skipped {path}: {problem}", markup=False, style="yellow")
            else:
                found.append(path)
        if not found:
            raise DocumentError(file, f"no document of a known kind ({', '.join(suffixes())}) here")
        yield from ((str(path), str(path.relative_to(file))) for path in found)
