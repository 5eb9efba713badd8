"""Spreadsheets of a review, opened again by programs that did not write them: openpyxl's reader, csv, and the XML."""

import csv
import io
import zipfile
from pathlib import Path

import pytest
from openpyxl import load_workbook

from vcc.documents.answer import Answer
from vcc.documents.review_table import Question, ReviewRow, ReviewTable
from vcc.documents.show import spreadsheet
from vcc.documents.show.spreadsheet import csv_bytes, score_colour, write_spreadsheet, xlsx_bytes
from vcc.errors import UsageError

EVIL = ['=HYPERLINK("http://a.example","x")', "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "  =1"]


def answer(text: str, score: float = 0.9, sure: bool = True) -> Answer:
    return Answer(text, 0, len(text), score, "page 3", 3, f"So it says: {text}", sure)


def table(*texts: str) -> ReviewTable:
    cells = tuple((answer(text),) if text else () for text in texts)
    questions = tuple(Question(f"Question {number}?", f"Q{number}") for number in range(len(texts)))
    return ReviewTable(questions, (ReviewRow("a.pdf", cells, ("a note",)), ReviewRow("b.pdf", error="is empty")))


def test_a_row_a_contract_a_column_a_question_the_sentence_as_comment() -> None:
    sheet = load_workbook(io.BytesIO(xlsx_bytes(table("Vermont", ""))))["Review"]
    assert [[cell.value for cell in row] for row in sheet.iter_rows()] == [
        ["Document", "Q0", "Q1", "Notes"],
        ["a.pdf", "Vermont", None, "a note"],
        ["b.pdf", None, None, "not read: is empty"],
    ]
    assert sheet["B2"].comment.text == "page 3, score 0.90\nSo it says: Vermont"
    assert sheet["B2"].fill.start_color.rgb == "00" + score_colour(0.9)
    assert sheet["C2"].comment is None


def test_the_answers_have_a_sheet_of_their_own_if_it_can_hold_them(monkeypatch: pytest.MonkeyPatch) -> None:
    book = load_workbook(io.BytesIO(xlsx_bytes(table("Vermont", "", "Maine"))))
    head, *rows = ([cell.value for cell in row] for row in book["Answers"].iter_rows())
    assert [dict(zip(head, row, strict=True)) for row in rows] == [
        {"document": "a.pdf", "question": f"Question {n}?", "name": f"Q{n}", **answer(text).as_dict(), "boxes": "[]"}
        for n, text in ((0, "Vermont"), (2, "Maine"))
    ]
    monkeypatch.setattr(spreadsheet, "MOST_ROWS", 2)  # a heading and one answer
    assert load_workbook(io.BytesIO(xlsx_bytes(table("Vermont", "", "Maine")))).sheetnames == ["Review", "Legend"]
    assert "Answers" in load_workbook(io.BytesIO(xlsx_bytes(table("Vermont")))).sheetnames


def test_doubtful_answers_are_marked_in_both_formats() -> None:
    made = ReviewTable((Question("Which?"),), (ReviewRow("a", ((answer("Vermont", 0.3, sure=False),),)),))
    cell = load_workbook(io.BytesIO(xlsx_bytes(made)))["Review"]["B2"]
    assert cell.value == "? Vermont" and cell.font.italic and "doubtful" in cell.comment.text
    assert cell.fill.start_color.rgb != "00" + score_colour(0.3)
    head, row = csv.reader(io.StringIO(csv_bytes(made).decode("utf-8-sig"), newline=""))
    assert (row[head.index("Which?")], row[head.index("Which? (sure)")]) == ("Vermont", "false")


def test_several_answers_take_a_line_each() -> None:
    cell = (answer("in\nVermont"), answer("in Maine", 0.25))
    made = ReviewTable((Question("Which?"),), (ReviewRow("a", (cell,)),))
    assert load_workbook(io.BytesIO(xlsx_bytes(made)))["Review"]["B2"].value == "in Vermont\nin Maine"
    _, row = csv.reader(io.StringIO(csv_bytes(made).decode("utf-8-sig"), newline=""))
    sentences = "So it says: in Vermont\nSo it says: in Maine"
    assert row[1:6] == ["in Vermont\nin Maine", "0.9000\n0.2500", "page 3\npage 3", sentences, "true\ntrue"]


@pytest.mark.parametrize("evil", EVIL)
def test_no_text_becomes_a_formula(evil: str) -> None:
    hostile = ReviewTable((Question(evil, evil, evil),), (ReviewRow(evil, ((answer(evil),),), (evil,)),))
    data = xlsx_bytes(hostile)
    for sheet in load_workbook(io.BytesIO(data)).worksheets:
        assert all(cell.data_type != "f" for row in sheet.iter_rows() for cell in row)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        pages = [archive.read(name).decode() for name in archive.namelist() if "worksheets/sheet" in name]
        assert pages and not any("<f>" in page or "<f " in page for page in pages)
        assert 'quotePrefix="1"' in archive.read("xl/styles.xml").decode()
    for row in csv.reader(io.StringIO(csv_bytes(hostile).decode("utf-8-sig"), newline="")):
        assert not any(value.strip()[:1] and value.strip()[0] in "=+-@" for value in row), row


def test_csv_has_the_same_content() -> None:
    rows = list(csv.reader(io.StringIO(csv_bytes(table("Vermont", "")).decode("utf-8-sig"), newline="")))
    assert rows[0][:6] == ["document", "Q0", "Q0 (score)", "Q0 (place)", "Q0 (sentence)", "Q0 (sure)"]
    assert rows[1][:6] == ["a.pdf", "Vermont", "0.9000", "page 3", "So it says: Vermont", "true"]
    assert rows[1][-2:] == ["a note", ""] and rows[2][-1] == "is empty"
    assert len({len(row) for row in rows}) == 1


def test_characters_that_xml_cannot_hold_and_long_texts_are_written() -> None:
    odd = table("a\x00b\x0bc\ud800d\uffffe", "long " * 20_000)
    sheet = load_workbook(io.BytesIO(xlsx_bytes(odd)))["Review"]
    assert sheet["B2"].value == "a\ufffdb c\ufffdd\ufffde"  # a vertical tab is a blank
    assert len(sheet["C2"].value) <= 32_767 and len(sheet["C2"].comment.text) < 2_000
    assert csv_bytes(odd)


def test_the_name_says_the_format(tmp_path: Path) -> None:
    write_spreadsheet(tmp_path / "a.XLSX", table("x"))
    assert load_workbook(tmp_path / "a.XLSX")
    write_spreadsheet(tmp_path / "a.csv", table("x"))
    assert (tmp_path / "a.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    with pytest.raises(UsageError, match=r"must end in \.xlsx or \.csv"):
        write_spreadsheet(tmp_path / "a.ods", table("x"))


def test_colours_go_from_amber_to_green() -> None:
    assert [score_colour(score) for score in (-1, 0.5, 2)] == ["FDE2C4", "FEF3C7", "BBE6C5"]
