"""Headings of plain text: every kind is found with its place, and what only looks like one is not."""

import pytest

from vcc.documents.formats.read import read_data
from vcc.documents.formats.sections import headings
from vcc.documents.text import BEGINNING

CONTRACT = """SUPPLY AGREEMENT

This Agreement is made between A and B.

ARTICLE I
DEFINITIONS

Section 1.01 Defined Terms. Words have the meaning of Section 3.2 below. Section 5 shall survive.

2. Term of this Agreement. It lasts 3 years. 3. Governing Law. The law of Ohio governs it.
4.1 Payment terms. Invoices are paid within 30 days. The price is 12. Delivery is free.
EXHIBIT A - PRICES
9. Nothing of this sort belongs to a list that jumps so far.
Widgets cost 4 dollars."""


def labels(text: str) -> list[str]:
    return [part.label for part in read_data(text.encode(), "a.txt").parts]


def test_headings_of_a_contract() -> None:
    assert labels(CONTRACT) == [
        BEGINNING,
        "ARTICLE I",
        "ARTICLE I · Section 1.01 Defined Terms",
        "2. Term of this Agreement",
        "3. Governing Law",
        "4.1 Payment terms",
        "EXHIBIT A - PRICES",
    ]


def test_an_answer_is_in_the_section_that_holds_it() -> None:
    text = read_data(CONTRACT.encode(), "a.txt")
    assert text.part_at(text.text.index("Ohio")).label == "3. Governing Law"
    assert text.part_at(text.text.index("Widgets")).label == "EXHIBIT A - PRICES"
    assert text.part_at(text.text.index("30 days")).label == "4.1 Payment terms"


def test_every_word_stays() -> None:
    assert read_data(CONTRACT.encode(), "a.txt").text.split() == CONTRACT.split()


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("1. GOVERNING LAW", "1. GOVERNING LAW"),
        ("2.01 Confidential Information", "2.01 Confidential Information"),
        ("ARTICLE 2- CONFIDENTIAL INFORMATION", "ARTICLE 2- CONFIDENTIAL INFORMATION"),
        ("Schedule 3: Fees and Charges", "Schedule 3: Fees and Charges"),
        ("Related Work", "Related Work"),
        ("1 Introduction", "1 Introduction"),
        ("II. THE PARTIES", "II. THE PARTIES"),
        ("CHAPTER XIV", "CHAPTER XIV"),
    ],
)
def test_a_line_among_others(line: str, label: str) -> None:
    text = f"1.1 First things.\nsome words before.\n{line}\nand words after it, which go on."
    assert label in [head.label for head in headings(text)]


@pytest.mark.parametrize(
    "line",
    [
        "as set forth in Section 5.1 of this Agreement.",
        "Section 5 shall survive the end of this Agreement.",
        "on May 12. Delivery follows then.",
        "He was born in 1. A. Smith. said so",
        "97 Elm Street, Springfield",
        "Part of the price is due at once.",
    ],
)
def test_what_only_looks_like_one(line: str) -> None:
    assert headings(f"Some words first.\n{line}\nMore words.") == []


def test_paragraphs_with_numbers_alone_are_named_by_them() -> None:
    text = (
        "It is agreed:\n1. To keep the Information in confidence and not to show it;\n2. Not to copy it;\n7. Not this."
    )
    assert labels(text) == [BEGINNING, "1", "2"]
