"""Questions that are changed so that nothing answers them."""

import random

import pytest

from shipped_model import twists
from vcc.data.example import Example

TEXT = "Poland made Warsaw its capital in 1596. The court left Krakow for it. Lublin grew later, after 1700."


def example(question: str, answer: str = "1596") -> Example:
    return Example("1", question, TEXT, (answer,), ((TEXT.index(answer), TEXT.index(answer) + len(answer)),))


def changed(way: twists.Twist, question: str, names: tuple[str, ...] = ()) -> set[str | None]:
    return {way(example(question), names, random.Random(seed)) for seed in range(40)}


def test_each_way_changes_what_it_says() -> None:
    asked = "When did Poland make Warsaw its first capital?"
    assert changed(twists.opposite, asked) == {"When did Poland make Warsaw its last capital?"}
    assert "When did Warsaw make Poland its first capital?" in changed(twists.names_swapped, asked)
    assert "When did Poland not make Warsaw its first capital?" in changed(twists.negated, asked)
    assert "When didn't Poland make Warsaw its first capital?" in changed(twists.negated, asked)


def test_a_name_of_the_paragraph_stands_in_no_sentence_with_the_answer() -> None:
    found = changed(twists.name_from_beside, "When did the court of Warsaw move?")
    assert found <= {f"When did the court of {name} move?" for name in ("Krakow", "Lublin")} and found


def test_a_name_from_elsewhere_is_not_in_the_paragraph() -> None:
    names = ("Krakow", "Vienna", "1815")
    assert changed(twists.name_from_elsewhere, "When was Warsaw built?", names) == {"When was Vienna built?"}


@pytest.mark.parametrize(
    ("way", "question"),
    [
        (twists.opposite, "How many lived there?"),  # "How few" has the same answer
        (twists.names_swapped, "When did Poland and Warsaw meet?"),
        (twists.name_from_elsewhere, "when was it built?"),
        (twists.negated, "When was not it built?"),
    ],
)
def test_what_would_still_be_answered_is_not_made(way: twists.Twist, question: str) -> None:
    assert changed(way, question) == {None}


def test_opposites_go_both_ways() -> None:
    assert all(len(pair) == 2 and pair[0] != pair[1] for pair in twists.PAIRS)
    assert "before" in twists.OPPOSITE["after"] and "after" in twists.OPPOSITE["before"]
