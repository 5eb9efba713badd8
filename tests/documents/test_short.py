"""Short answers where short ones are asked for."""

import pytest

from vcc.data.answers import ScoredSpan
from vcc.documents.short import LOST, kind_asked, ranked, shortened
from vcc.qa.clauses import CLAUSES


@pytest.mark.parametrize(
    ("question", "sentence", "short"),
    [
        ("How much insurance is needed?", "cover of $2,000 a claim and $5,000 a year", "$2,000 a claim and $5,000"),
        ("What is the price?", "The price is EUR 40, or 12.5 dollars each", "12.5 dollars"),
        ("How much does it cost?", "It costs 20% less than £75 a year", "£75"),
        ("What is her annual salary?", "a salary of 4 percent over 300 dollars", "300 dollars"),
        ("What share does it keep?", "keeps thirty-five percent (35%) of it", "thirty-five percent (35%)"),
        ("How many cars were sold?", "In all 1,204 cars were sold", "1,204"),
        ("How long does it last?", "for a period of twenty-four (24) months from delivery", "twenty-four (24) months"),
        ("How many days are there to pay?", "within ten (10) business days", "ten (10) business days"),
        ("What is the notice period?", "on 90 days' notice", "90 days"),
        ("When does it end?", "continues until February 28, 2029 unless renewed", "February 28, 2029"),
        ("On what date was it signed?", "dated the 3rd day of May, 1999 in London", "3rd day of May, 1999"),
        ("In which year was it built?", "It was built in 1871.", "1871"),
        ("What is the email address?", "write to:help@example.com, please", "help@example.com"),
        ("When was it?", "no date at all", "no date at all"),
    ],
)  # fmt: skip
def test_the_expression_that_is_asked_for(question: str, sentence: str, short: str) -> None:
    kind = kind_asked(question)
    assert kind is not None
    start, end = shortened(sentence, 0, len(sentence), kind)
    assert sentence[start:end] == short


@pytest.mark.parametrize(
    "question",
    [
        "Why did she leave?",
        "When may a party end it?",
        "How is the price set?",
        "Describe the year 1801.",
        "Who is she?",
    ],
)
def test_other_questions_want_words(question: str) -> None:
    assert kind_asked(question) is None


def test_the_clauses_of_a_review_are_shown_whole() -> None:
    assert {kind_asked(clause.question) for clause in CLAUSES} == {None}


def test_half_an_expression_becomes_whole() -> None:
    text = "within forty-five (45) days of it"
    kind = kind_asked("How many days?")
    assert kind is not None
    assert shortened(text, text.index("45"), text.index("45") + 2, kind) == (7, 27)


def test_a_span_without_what_is_asked_for_falls_behind() -> None:
    text = "It shall keep proof of insurance. It shall insure for $5."
    kind = kind_asked("How much insurance?")
    assert kind is not None
    found = [ScoredSpan(0, 5, 3.0), ScoredSpan(6, 11, 3.5 - LOST)]
    edges = [(0, 33), (34, len(text))]
    assert ranked(text, found, edges, kind) == [found[1], ScoredSpan(0, 5, 3.0 - LOST)]
    far = [found[0], ScoredSpan(6, 11, 2.9 - LOST)]
    assert ranked(text, far, edges, kind)[0].first == 0
