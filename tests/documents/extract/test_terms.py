"""A day that has to be computed from a term."""

import pytest

from vcc.documents.extract.terms import added, end_of_term

pytest.importorskip("dateparser")
pytest.importorskip("text_to_num")
EFFECT = "2010-07-15"


@pytest.mark.parametrize(
    ("clause", "day"),
    [
        ("This Agreement shall remain in effect for a period of 5 years from the Effective Date.", "2015-07-15"),
        ("The term of the Franchise shall be twenty (20) years, commencing on January 1, 2016.", "2036-01-01"),
        (
            "It shall remain in effect for the five (5) year term from the date signed and shall be extended for one "
            "(1) year periods unless sixty (60) days' notice is given.",
            "2015-07-15",
        ),
        ("It is renewed for successive periods of one year; its initial term is eighteen (18) months.", "2012-01-15"),
        ("This Agreement shall continue until December 31, 2020.", "2020-12-31"),
        ("It commences on May 1, 2020 and ends on April 30, 2029, with renewals of five (5) years.", "2029-04-30"),
        ("It begins on the Effective Date and ends on the fifth anniversary of the Effective Date.", "2015-07-15"),
        ("It extends until the four (4) year anniversary of the Effective Date.", "2014-07-15"),
        ("It has an initial term of one (1) year and continues indefinitely after that.", "2011-07-15"),
        ("This Agreement shall continue indefinitely, and for at least two years.", None),
        ("Either party may give ninety (90) days' notice.", None),
        ("It ends when all is paid.", None),
    ],
)
def test_the_day_on_which_a_term_ends(clause: str, day: str | None) -> None:
    found = end_of_term(clause, lambda: EFFECT)
    assert (None if found is None else found.value) == day


def test_without_a_beginning_there_is_no_end() -> None:
    assert end_of_term("The term is five years.", lambda: None) is None


def test_the_last_day_of_a_month_stays_inside_it() -> None:
    assert added("2024-01-31", "P1M") == "2024-02-29" and added("2024-02-29", "P1Y") == "2025-02-28"
