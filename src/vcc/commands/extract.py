"""`vcc extract`: fill the fields of a JSON Schema from a document, or from many."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.table import Table

from vcc.commands.shared.documents import (
    DEFAULT_READ_LIMITS,
    Json,
    Model,
    NoCache,
    ReadLimits,
    Threshold,
    check_folder,
    open_document,
    print_json,
    wrote,
)
from vcc.commands.shared.fleet import NO_FLEET, FleetOptions, run_fleet
from vcc.documents.extract.schema import FormSchema, form_schema
from vcc.errors import UsageError
from vcc.files import write_whole
from vcc.printable import printable

if TYPE_CHECKING:
    from vcc.documents.extract.fill import Form
    from vcc.fleet.job import Job

Files = Annotated[tuple[str, ...], "documents: text, Markdown, HTML, PDF, DOCX, EPUB, - for standard input, or folders"]


def extract(
    file: Files,
    schema: Annotated[Path | None, "JSON Schema of an object (required); its properties are the fields"] = None,
    out: Annotated[Path | None, "file to write: .json for one document, .xlsx, .csv or .parquet"] = None,
    threshold: Threshold = None,
    json: Json = False,
    model: Model = None,
    no_cache: NoCache = False,
    reading: ReadLimits = DEFAULT_READ_LIMITS,
    fleet: FleetOptions = NO_FLEET,
) -> None:
    """Fill the fields of a JSON Schema from a document, each value with its evidence.

    A field's name, description and type become its questions. Dates, durations, sums and numbers are read from the
    spans found. A field below the threshold stays empty. Several documents, or a folder, become one table; a stopped
    run resumes when started again.
    """
    if schema is None:
        raise UsageError("no --schema: name the .json file of a JSON Schema")
    form = form_schema(schema)
    check_folder(out)
    if not file:
        raise UsageError("no document: name at least one file or folder")
    single = len(file) == 1 and not os.path.isdir(file[0]) and (out is None or out.suffix.lower() == ".json")
    if not single or fleet.wanted(file, out):
        return run_fleet(extract_job(form, threshold, model, reading), file, out, fleet)
    document = open_document(file[0], model, no_cache, reading)
    filled = document.extract(form, threshold)
    values = {"document": document.content.title, "source": document.content.source, **filled.as_dict()}
    if out is not None:
        import json as json_format

        write_whole(out, json_format.dumps(values, indent=1, ensure_ascii=False) + "\n")
        wrote(out)
    elif json:
        print_json(values)
    else:
        print_form(Console(highlight=False), filled)


def extract_job(form: FormSchema, threshold: float | None, model: str | None, reading: ReadLimits) -> "Job":
    try:
        from vcc.fleet.job import Job
    except ImportError as error:
        raise UsageError(f"many documents need {error.name}: pip install 'vcc-transformers[documents]'") from error
    from vcc.documents.extract.wordings import questions_of
    from vcc.documents.review_table import Question

    questions = tuple(Question(questions_of(leaf)[0], leaf.path) for leaf in form.leaves)
    limits = reading.limits
    return Job(
        "extract", model, questions, 1, threshold, "", limits, reading.seconds, reading.memory_bytes, form.as_json()
    )


def print_form(console: Console, form: "Form") -> None:
    """A line per value: the field, the value, the probability that it is right, the place and the words."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("field", "value", "score", "place", "evidence"):
        table.add_column(name, overflow="fold")
    for filled in form.fields:
        answer = filled.answer
        shown = "" if filled.value is None else filled.shown
        about = ("", "", "") if answer is None else (f"{answer.score:.2f}", answer.place, short(answer.text))
        style = None if filled.value is not None else "dim"
        table.add_row(*(printable(cell) for cell in (filled.path, shown, *about)), style=style)
    console.print(table)
    if form.missing:
        console.print(f"required but not found: {printable(', '.join(form.missing))}", style="yellow", markup=False)


def short(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= 80 else words[:79] + "…"
