"""Short answers where short ones are asked for."""

import pytest

from vcc.documents.short import kind_asked, may_answer, shortened
from vcc.qa.clauses import CLAUSES


@pytest.mark.parametrize(
    ("question", "sentence", "short"),
    [
        ("How much insurance is needed?", "cover of $2,000 a claim and $5,000 a year", "$2,000 a claim and $5,000"),
        ("How old must one be?", "nine years a citizen, and the age of\nthirty years", "age of\nthirty years"),
        ("At what age may she vote?", "two years ago, at 18 years of age", "18 years of age"),
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
        ("How many requests are there each day?", "about 400K to 500K requests", "400K to 500K"),
        ("How many bytes fit?", "up to 4 GB or 20MB", "4 GB or 20MB"),
        ("How long is the delay?", "2, 5 or 10 days, as it is urgent", "2, 5 or 10 days"),
        ("After what delay may it be sent?", "after the 21 days delay it is sent", "21 days"),
        ("How long does it last?", "for at most three\n    (3) weeks in all", "three\n    (3) weeks"),
        ("How long does it last?", "Part 3\n\nYears pass", "Part 3\n\nYears pass"),
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
        "What happens when it rains?",
        "When it rains, what grows?",
        "Which countries share a border?",
        "What makes the day long?",
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


@pytest.mark.parametrize(
    ("question", "before", "span", "may"),
    [
        ("When did it end?", "It ended ", "after the flood", True),
        ("When did it end?", "It ended in ", "the 12th century", True),
        ("When did it end?", "It ended before the ", "flood", True),
        ("When did it end?", "It was a grave and ", "sad affair", False),
        ("How many came?", "There came ", "dozens of them", True),
        ("How many came?", "Those who came were ", "available", False),
        ("How long did it take?", "It took ", "almost a year", True),
        ("How long did it take?", "It took ", "great courage", False),
        ("How much did they pay?", "They paid ", "151 of them", True),
        ("How much does it cost?", "It comes with ", "3 volumes", False),
    ],
)
def test_words_that_may_be_what_is_asked_for(question: str, before: str, span: str, may: bool) -> None:
    kind = kind_asked(question)
    assert kind is not None
    assert may_answer(before + span, len(before), len(before + span), kind) is may
