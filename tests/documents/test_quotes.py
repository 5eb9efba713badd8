"""Quotes are found without a model, and what was changed in them."""

import pytest

from vcc.documents.quotes import find_quote

TEXT = (
    "This Agreement is made on March 15, 2000 between Acme Corporation and Beta Limited. The Buyer shall pay a fee of "
    "$1,250,000 within thirty (30) days after delivery of the goods. Neither party may assign this Agreement without "
    "the prior written consent of the other. The laws of the State of New York govern this Agreement. "
) + "Filler words. " * 50


def test_an_exact_quote_is_found_whatever_its_case_and_blanks() -> None:
    quote = find_quote(TEXT, "the buyer shall  pay a fee of $1,250,000 within thirty (30)\ndays")
    assert quote is not None and quote.exact and quote.faithful
    assert TEXT[quote.start : quote.end] == "The Buyer shall pay a fee of $1,250,000 within thirty (30) days"


@pytest.mark.parametrize(
    ("sentence", "ours", "theirs"),
    [
        ("The Buyer shall pay a fee of $1,350,000 within thirty (30) days after delivery.", "1,350,000", "1,250,000"),
        ("This Agreement is made on March 16, 2000 between Acme Corporation and Beta Limited.", "16", "15"),
        ("This Agreement is made on March 15, 2000 between Acme Corporation and Gamma Limited.", "Gamma", "Beta"),
        ("The laws of the State of New Jersey govern this Agreement.", "Jersey", "York"),
        ("Neither party may assign this Agreement with the prior written consent of the other.", "with", "without"),
    ],
)
def test_a_changed_name_sum_date_or_negation_is_named(sentence: str, ours: str, theirs: str) -> None:
    quote = find_quote(TEXT, sentence)
    assert quote is not None and quote.changed == (ours, theirs) and not quote.faithful


def test_other_words_of_little_weight_are_a_quote_still() -> None:
    quote = find_quote(TEXT, "The Buyer shall pay a fee of $1,250,000 within thirty (30) days after delivery of goods.")
    assert quote is not None and quote.faithful and not quote.exact


@pytest.mark.parametrize("sentence", ["", "pay", "Cats sleep for most of the long day.", "word " * 1000])
def test_what_is_no_quote_is_none(sentence: str) -> None:
    assert find_quote(TEXT, sentence) is None
