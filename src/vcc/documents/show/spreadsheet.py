"""A review table as a spreadsheet, one row per document: XLSX with colours and comments, or CSV.

XLSX also has a sheet with one row per answer, under the names of `Answer`.

Text from a document is never a formula: cells that begin like one stay text, in both formats.
"""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vcc.documents.answer import ANSWER_FIELDS, Answer, on_one_line
from vcc.documents.review_table import ReviewTable
from vcc.documents.text import INSTALL
from vcc.errors import UsageError
from vcc.files import write_whole

if TYPE_CHECKING:
    from openpyxl.cell import Cell
    from openpyxl.worksheet.worksheet import Worksheet

FORMULA = re.compile(r"\s*[=+\-@\t\r]")  # spreadsheet programs read these as the start of a formula
UNWRITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")  # not allowed in XML
LONGEST = 32_000  # characters; a cell holds 32,767
LONGEST_COMMENT = 1_500
MOST_ROWS = 1_048_576  # of a sheet
# Score to colour, from a guess to almost certain; black text is readable on all of them.
COLOURS = ((0.0, (253, 226, 196)), (0.5, (254, 243, 199)), (1.0, (187, 230, 197)))
DOUBTFUL, MISSING, FAILED = "E8E6F5", "F3F4F6", "FECACA"
SUFFIXES = (".xlsx", ".csv")
COLUMNS = ("score", "place", "sentence", "sure")  # of an answer, in CSV beside its text


def check_spreadsheet(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path} must end in {' or '.join(SUFFIXES)}")


def write_spreadsheet(path: Path, table: ReviewTable) -> None:
    """Write a table as .xlsx or .csv."""
    check_spreadsheet(path)
    write_whole(path, xlsx_bytes(table) if path.suffix.lower() == ".xlsx" else csv_bytes(table))


def csv_bytes(table: ReviewTable) -> bytes:
    """UTF-8 with a byte-order mark, for Excel. A question has a column of answers, one per line, and one for each of
    COLUMNS.
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    heads = [[head, *(f"{head} ({name})" for name in COLUMNS)] for head in headings(table)]
    writer.writerow(map(harmless, ["document", *(name for head in heads for name in head), "notes", "error"]))
    for row in table.rows:
        cells = row.cells or [()] * len(table.questions)
        columns = [[in_lines(cell, name) for name in ("text", *COLUMNS)] for cell in cells]
        values = [row.document, *(value for column in columns for value in column), "\n".join(row.notes), row.error]
        writer.writerow(map(harmless, values))
    return b"\xef\xbb\xbf" + out.getvalue().encode("utf-8", "replace")


def xlsx_bytes(table: ReviewTable) -> bytes:
    """A workbook: the table, a sheet with one row per answer, and a legend with the questions in full."""
    try:
        from openpyxl import Workbook
    except ImportError as error:
        raise UsageError(f"writing XLSX needs openpyxl: {INSTALL}; .csv needs nothing") from error
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    fill_table(sheet, table)
    if sum(len(cell) for row in table.rows for cell in row.cells) < MOST_ROWS:
        fill_answers(book.create_sheet("Answers"), table)
    fill_legend(book.create_sheet("Legend"), table)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def fill_table(sheet: "Worksheet", table: ReviewTable) -> None:
    from openpyxl.utils import get_column_letter

    sheet.title = "Review"
    errors = any(row.error or row.notes for row in table.rows)
    for column, head in enumerate(["Document", *headings(table), *(["Notes"] if errors else [])], 1):
        heading(put(sheet, 1, column, head))
        sheet.column_dimensions[get_column_letter(column)].width = 34 if column == 1 else 42
    for number, row in enumerate(table.rows, 2):
        put(sheet, number, 1, row.document, bold=True)
        for column, cell in enumerate(row.cells, 2):
            fill_cell(put(sheet, number, column, shown(cell)), cell)
        if row.error or row.notes:
            words = "\n".join(filter(None, (row.error and f"not read: {row.error}", *row.notes)))
            noted = put(sheet, number, len(table.questions) + 2, words)
            if row.error:
                colour(noted, FAILED)
                colour(sheet.cell(number, 1), FAILED)
    sheet.freeze_panes = "B2"
    sheet.auto_filter.ref = sheet.dimensions


def fill_cell(place: "Cell", cell: tuple[Answer, ...]) -> None:
    """Colour by the best answer's score; a comment with place, score and sentence of each answer."""
    from openpyxl.comments import Comment
    from openpyxl.styles import Font

    if not cell:
        colour(place, MISSING)
        return
    colour(place, score_colour(cell[0].score) if cell[0].sure else DOUBTFUL)
    if not cell[0].sure:
        place.font = Font(italic=True)
    words = remarks(cell)
    comment = Comment(clean(words), "vcc")
    comment.width, comment.height = 420, min(60 + 18 * (len(words) // 60 + words.count("\n")), 480)
    place.comment = comment


def fill_answers(sheet: "Worksheet", table: ReviewTable) -> None:
    """One row per answer: its fields, boxes as JSON."""
    for column, name in enumerate(("document", "question", "name", *ANSWER_FIELDS), 1):
        heading(put(sheet, 1, column, name))
    answers = (
        (row.document, question.question, question.name, *answer.as_dict().values())
        for row in table.rows
        for question, cell in zip(table.questions, row.cells, strict=False)  # a failed document has no cells
        for answer in cell
    )
    for number, values in enumerate(answers, 2):
        for column, value in enumerate(values, 1):
            if isinstance(value, (int, float)):
                sheet.cell(number, column).value = value
            elif value is not None:
                put(sheet, number, column, value if isinstance(value, str) else json.dumps(value))


def fill_legend(sheet: "Worksheet", table: ReviewTable) -> None:
    meanings = [
        (score_colour(1.0), "found, score near 1: almost certain"),
        (score_colour(0.5), "found, score near 0.5: as likely as not"),
        (score_colour(0.1), "found, low score: check it"),
        (
            DOUBTFUL,
            "in italics after a question mark: doubtful, the nearest passage; probably not an answer",
        ),
        (MISSING, "nothing found: the document probably does not say it"),
        (FAILED, "the document could not be read"),
    ]
    heading(put(sheet, 1, 1, "Colour"))
    heading(put(sheet, 1, 2, "Meaning"))
    for number, (fill, meaning) in enumerate(meanings, 2):
        colour(put(sheet, number, 1, ""), fill)
        put(sheet, number, 2, meaning)
    first = len(meanings) + 3
    for column, name in enumerate(("Column", "Question", "Group"), 1):
        heading(put(sheet, first, column, name))
    for number, question in enumerate(table.questions, first + 1):
        for column, value in enumerate((question.heading, question.question, question.group), 1):
            put(sheet, number, column, value)
    for letter, width in (("A", 28), ("B", 90), ("C", 24)):
        sheet.column_dimensions[letter].width = width


def put(sheet: "Worksheet", row: int, column: int, value: str, bold: bool = False) -> "Cell":
    """Write a text as text, never as a formula."""
    from openpyxl.styles import Alignment, Font

    cell = sheet.cell(row, column)
    cell.value = clean(value)[:LONGEST]
    cell.data_type = "s"  # openpyxl reads a leading "=" as a formula
    cell.quotePrefix = bool(FORMULA.match(value))  # stays text after editing
    cell.alignment = Alignment(wrap_text=True, vertical="top")
    cell.font = Font(bold=bold)
    return cell


def heading(cell: "Cell") -> None:
    from openpyxl.styles import Font

    cell.font = Font(bold=True, color="FFFFFF")
    colour(cell, "374151")


def colour(cell: "Cell", fill: str) -> None:
    from openpyxl.styles import PatternFill

    cell.fill = PatternFill("solid", start_color=fill, end_color=fill)


def score_colour(score: float) -> str:
    """The interpolated colour of COLOURS, as six hexadecimal digits."""
    score = min(max(score, 0.0), 1.0)
    (low, a), (high, b) = next(pair for pair in zip(COLOURS, COLOURS[1:], strict=False) if score <= pair[1][0])
    share = (score - low) / (high - low)
    return "".join(f"{round(x + share * (y - x)):02X}" for x, y in zip(a, b, strict=True))


def headings(table: ReviewTable) -> Iterator[str]:
    return (question.heading for question in table.questions)


def shown(cell: tuple[Answer, ...]) -> str:
    """The answers, one per line; doubtful ones after a question mark."""
    return "\n".join(("" if answer.sure else "? ") + on_one_line(answer.text) for answer in cell)


def in_lines(cell: tuple[Answer, ...], name: str) -> str:
    """One field of each answer, one per line."""
    return "\n".join(plain(getattr(answer, name)) for answer in cell)


def plain(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return on_one_line(value) if isinstance(value, str) else f"{value:.4f}"


def remarks(cell: tuple[Answer, ...]) -> str:
    """The place, score and sentence of each answer."""
    each = LONGEST_COMMENT // max(len(cell), 1)
    return "\n\n".join(
        f"{answer.place}, score {answer.score:.2f}{'' if answer.sure else ', doubtful'}\n{cut(answer.sentence, each)}"
        for answer in cell
    )


def cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest].rpartition(" ")[0] + " …"


def clean(value: str) -> str:
    return UNWRITABLE.sub("\ufffd", value)


def harmless(value: str) -> str:
    """Prefix formulas with an apostrophe: CSV has no other way to mark text."""
    value = clean(value)[:LONGEST]
    return "'" + value if FORMULA.match(value) else value
