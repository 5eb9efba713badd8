"""Boxes of a PDF's words: the right words, in the right place, however the page is turned and cut."""

import io
import json

import pypdf
import pytest

from tests.documents.samples import pdf_bytes
from vcc.documents.answer import Reply, answer_at, as_dict
from vcc.documents.boxes import Box, Word, line_boxes
from vcc.documents.formats.pdf_words import PageWord, even
from vcc.documents.formats.read import read_data
from vcc.documents.text import Text
from vcc.documents.text_json import text_from_values, text_to_json

LINES = ["This agreement is governed by the laws of", "the State of Vermont, without regard to con-", "flicts of law."]


def contract(pages: int = 2) -> Text:
    return read_data(pdf_bytes([["Page one."]] * (pages - 1) + [LINES]), "a.pdf")


def test_every_word_has_its_characters_and_a_box_inside_its_page() -> None:
    text = contract()
    assert " ".join(text.text[word.start : word.end] for word in text.words) == "Page one. " + (
        "This agreement is governed by the laws of the State of Vermont, without regard to con flicts of law."
    )
    assert "conflicts of law." in text.text
    assert {word.page for word in text.words} == {1, 2}
    for word in text.words:
        assert 0 <= word.x0 < word.x1 <= 1 and 0 <= word.y0 < word.y1 <= 1


def test_a_span_over_two_lines_has_two_boxes_where_the_page_draws_them() -> None:
    text = contract()
    start = text.text.index("laws")
    boxes = text.boxes(start, text.text.index("Vermont") + 7)
    assert [box.page for box in boxes] == [2, 2]
    # The lines are drawn from x = 72 at y = 720 and 14 points below it, on a page of 612 by 792, in 11 point Helvetica.
    first, second = boxes
    assert second.x0 == pytest.approx(72 / 612, abs=0.002)
    assert first.y0 < 1 - 720 / 792 < first.y1 and second.y0 < 1 - 706 / 792 < second.y1
    assert first.x0 > second.x0 and second.y0 >= first.y0
    assert text.boxes(start, start) == ()


def test_a_word_cut_by_a_line_end_has_a_box_on_both_lines() -> None:
    text = contract()
    start = text.text.index("conflicts")
    head, tail = text.boxes(start, start + 9)
    assert head.x0 > tail.x0 and head.y0 < tail.y0


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_boxes_follow_the_page_as_it_is_shown(turn: int) -> None:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf_bytes([["Vermont"]])))
    page = writer.pages[0]
    page.cropbox = pypdf.generic.RectangleObject((50, 100, 450, 750))
    page.rotate(turn)
    out = io.BytesIO()
    writer.write(out)
    (word,) = read_data(out.getvalue(), "a.pdf").words
    # The start of the baseline, (72, 720), in the visible part, and then turned with the page.
    x, y = (72 - 50) / 400, (750 - 720) / 650
    for _ in range(turn // 90):
        x, y = 1 - y, x
    assert word.x0 - 0.01 <= x <= word.x1 + 0.01 and word.y0 - 0.01 <= y <= word.y1 + 0.01
    assert (word.x1 - word.x0 > word.y1 - word.y0) == (turn in (0, 180))


def test_answers_carry_their_boxes_also_as_json_and_back() -> None:
    text = contract()
    start = text.text.index("Vermont")
    answer = answer_at(text, start, start + 7, 0.9)
    assert answer.boxes == text.boxes(start, start + 7) and len(answer.boxes) == 1
    shown = as_dict(text, [Reply("Which law?", (answer,))])["replies"][0]["answers"][0]["boxes"]
    assert shown == [answer.boxes[0]._asdict()] and set(shown[0]) == {"page", "x0", "y0", "x1", "y1"}
    assert text_from_values(json.loads(text_to_json(text))) == text


def test_columns_and_pages_are_not_joined_into_one_box() -> None:
    words = [
        Word(0, 2, 1, 0.1, 0.1, 0.2, 0.12),
        Word(3, 5, 1, 0.21, 0.1, 0.3, 0.12),
        Word(6, 8, 1, 0.6, 0.1, 0.7, 0.12),
        Word(9, 11, 2, 0.71, 0.1, 0.8, 0.12),
    ]
    assert line_boxes(words) == (
        Box(1, 0.1, 0.1, 0.3, 0.12),
        Box(1, 0.6, 0.1, 0.7, 0.12),
        Box(2, 0.71, 0.1, 0.8, 0.12),
    )


def test_a_text_without_pages_has_no_boxes() -> None:
    text = read_data(b"Plain words.", "a.txt")
    assert text.words == () and text.boxes(0, 5) == ()


def line_of(*boxes: tuple[float, float, float, float]) -> list[PageWord]:
    return [PageWord(f"w{number}", box) for number, box in enumerate(boxes)]


def test_a_tall_sign_is_cut_to_its_line_and_nothing_else_is() -> None:
    usual = [(0.1 * n, 0.20, 0.1 * n + 0.08, 0.22) for n in range(4)]
    tall, raised = (0.5, 0.19, 0.52, 0.26), (0.6, 0.195, 0.62, 0.22)
    assert [word.box for word in even(line_of(*usual, tall, raised))] == [*usual, (0.5, 0.20, 0.52, 0.22), raised]
    down = line_of(*((0.1, 0.1 * n, 0.12, 0.1 * n + 0.02 * n) for n in range(1, 7)))  # letters that run downwards
    assert even(down) == down
    assert even(line_of(tall, raised)) == line_of(tall, raised)  # which of two is the usual one?
    far = (0.7, 0.40, 0.72, 0.60)  # PDFium may take it for the same line
    assert even(line_of(*usual, far))[-1].box == far
    dots = [PageWord(".", (0.8 + 0.01 * n, 0.218, 0.805 + 0.01 * n, 0.22)) for n in range(9)]
    assert even(line_of(*usual) + dots) == line_of(*usual) + dots  # most of a line of contents are dots
