"""Which spans may answer a question, what is shown of them, and which of them compete."""

import pytest

from vcc.documents.candidates import LOST, candidates, says_nothing, whole_names, within_brackets


def edges_of(text: str, span: str) -> tuple[int, int]:
    start = text.index(span)
    return start, start + len(span)


def test_a_span_without_what_is_asked_for_falls_behind() -> None:
    text = "It shall keep proof of insurance. It shall insure for $5."
    edges, money = [(0, 33), (34, len(text))], edges_of(text, "$5")
    first, second = candidates("How much insurance?", text, edges, [3.0, 3.5 - LOST])
    assert first.edges == money and first.lead == 3.5 - LOST and second.lead == 3.0 - LOST
    first, _ = candidates("How much insurance?", text, edges, [3.0, 2.9 - LOST])
    assert first.edges == (0, 33)


@pytest.mark.parametrize(
    ("question", "span", "nothing"),
    [
        ("How many packages are available?", "How many", True),
        ("What majority is needed?", "the majority", True),
        ("What majority is needed?", "a 3:1 majority", False),
        ("What is the prompt?", " . ", True),
        ("What is the prompt?", "> ", False),
        ("Which channel has Mutt?", "#mutt", False),
        ("Is it red or blue?", "blue", False),
    ],
)
def test_a_span_that_repeats_the_question_says_nothing(question: str, span: str, nothing: bool) -> None:
    assert says_nothing(question, span) is nothing


def test_a_span_that_repeats_the_question_is_no_answer_unless_there_is_nothing_else() -> None:
    text = "6.1 How many parts\n\nThere are four parts."
    heading, answer = edges_of(text, "How many parts"), edges_of(text, "four")
    found = candidates("How many parts are there?", text, [heading, answer], [9.0, 5.0])
    assert [one.edges for one in found] == [answer]
    assert len(candidates("How many parts are there?", text, [heading], [9.0])) == 1


@pytest.mark.parametrize(
    ("text", "span", "shown"),
    [
        ("Overrule (requires a 3:1 majority). It may ask.", "3:1 majority). It may ask.", "3:1 majority"),
        ("It is (by law) 3:1. It may ask (or not).", "3:1. It may ask (or not).", "3:1. It may ask (or not)."),
        ("b) Send the code (in full) to us", "b) Send the code (in full)", "b) Send the code (in full)"),
    ],
)
def test_a_span_ends_with_the_brackets_it_began_in(text: str, span: str, shown: str) -> None:
    first, last = within_brackets(text, *edges_of(text, span))
    assert text[first:last] == shown


@pytest.mark.parametrize(
    ("text", "span", "shown"),
    [
        ("get it from ftp.cc.purdue.edu by ftp.", "purdue", "ftp.cc.purdue.edu"),
        ("since release 4.95.0 of it", "95", "4.95.0"),
        ("It is red.It is blue.So it is", "blue", "blue"),
        ("at ftp.cc.purdue.edu now", "at ftp.cc.purdue.edu", "at ftp.cc.purdue.edu"),
    ],
)
def test_the_name_of_a_host_is_whole(text: str, span: str, shown: str) -> None:
    first, last = whole_names(text, *edges_of(text, span))
    assert text[first:last] == shown


def test_a_long_span_without_blanks_is_read_once() -> None:
    """The tokenizer takes a word of any length as one token; a search that begins anew at each character never ends."""
    text = "a-" * 500_000
    assert [one.edges for one in candidates("What is it?", text, [(0, len(text))], [1.0])] == [(0, len(text))]
