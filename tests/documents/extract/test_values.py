"""Values are read from words as a person reads them."""

import pytest

from vcc.documents.extract.values import choices_in, values_in

pytest.importorskip("dateparser")
pytest.importorskip("price_parser")
pytest.importorskip("text_to_num")


def read(kind: str, words: str) -> list[object]:
    return [found.value for found in values_in(kind, words)]


@pytest.mark.parametrize(
    ("words", "day"),
    [
        ("made this 14th day of November 2017", "2017-11-14"),
        ("dated Feb 10, 2014", "2014-02-10"),
        ("the 24t h day of August 2018", "2018-08-24"),
        ("02 June, 2015", "2015-06-02"),
        ("9/28/2004", "2004-09-28"),
        ("3. Oktober 2019", "2019-10-03"),
    ],
)
def test_dates(words: str, day: str) -> None:
    assert read("date", words) == [day]


@pytest.mark.parametrize("words", ["June 2010", "this day of , 2012", "the Effective Date", ""])
def test_a_date_without_a_day_is_none(words: str) -> None:
    assert read("date", words) == []


@pytest.mark.parametrize(
    ("words", "amount", "currency"),
    [
        ("US$ 1.5 million", 1_500_000, "USD"),
        ("a fee of $1,250.50 per month", 1250.5, "USD"),
        ("EUR 3,000", 3000, "EUR"),
        ("ten thousand dollars", 10_000, "USD"),
        ("£20", 20, "GBP"),
    ],
)
def test_sums(words: str, amount: float, currency: str) -> None:
    assert read("sum", words) == [{"amount": amount, "currency": currency}]


def test_a_percentage_is_no_sum() -> None:
    assert read("sum", "an interest of five percent (5%)") == []


@pytest.mark.parametrize(
    ("words", "duration"),
    [
        ("one hundred twenty (120) days", "P120D"),
        ("a three (3) year period", "P3Y"),
        ("a thirty-day notice", "P30D"),
        ("two quarters", "P6M"),
        ("12 hours", "PT12H"),
        ("renewed annually", "P1Y"),
    ],
)
def test_durations(words: str, duration: str) -> None:
    assert read("duration", words) == [duration]


def test_numbers_are_read_in_order_and_where_they_stand() -> None:
    words = "twenty-five units of 1,000 pieces"
    found = values_in("number", words)
    assert [one.value for one in found] == [25, 1000]
    assert [words[one.start : one.end] for one in found] == ["twenty-five", "1,000"]


def test_the_longer_of_two_choices_is_found() -> None:
    (found,) = choices_in("a Non-Exclusive licence", ["exclusive", "non_exclusive"])
    assert found.value == "non_exclusive"
    assert choices_in("an inclusive offer", ["exclusive"]) == []
