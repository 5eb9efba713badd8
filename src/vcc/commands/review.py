"""`vcc review`: the clauses a lawyer looks for, found in one contract."""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from vcc.commands.documents import (
    AS_USUAL,
    File,
    Json,
    Model,
    Most,
    NoCache,
    Page,
    Top,
    answer,
    check_folder,
    check_top,
    open_document,
    print_json,
    write_page,
)
from vcc.documents.answers import as_dict
from vcc.documents.clauses import CLAUSES
from vcc.documents.show.report import report_html
from vcc.documents.show.terminal import print_review


def review(
    file: File,
    top: Top = 1,
    json: Json = False,
    html: Page = None,
    model: Model = None,
    no_cache: NoCache = False,
    most: Most = AS_USUAL,
) -> None:
    """Find the 41 kinds of clauses of CUAD in a contract: a table, and a page beside the whole text.

    Unless --html names another file, the page is written to the current folder as NAME.review.html; with --json, only
    where --html asks for it.
    """
    check_top(top)
    check_folder(html)
    document = open_document(file, model, no_cache, most)
    found, facts = answer(document, [clause.question for clause in CLAUSES], top, document.asker().clause_lead)
    replies = [
        replace(reply, name=clause.name, group=clause.group) for reply, clause in zip(found, CLAUSES, strict=True)
    ]
    if html is None and not json:
        html = Path("document.review.html" if file == "-" else f"{Path(file).resolve().stem}.review.html")
    if html is not None:
        write_page(html, report_html(document.content, replies, facts.shown()))
    if json:
        print_json({**as_dict(document.content, replies), "facts": facts.as_dict()})
    else:
        print_review(Console(highlight=False), document.content, replies, facts.shown())
