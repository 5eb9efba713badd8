"""What a model wrote counts as supported only where the passages say it."""

import pytest

from vcc.chat.passages import GivenPassage
from vcc.chat.support import facts_of, is_supported, sentences_of
from vcc.chat.talk import checked

TEXT = (
    "Larkspur is a Delaware corporation. It sells instruments for water. Harrow & Vale is an Oregon company. "
    "The agreement continues until February 28, 2029. The fee is 1,250.50 dollars a month."
)


@pytest.mark.parametrize(
    "sentence",
    [
        "The agreement continues until February 28, 2029.",
        "Larkspur is a corporation of Delaware and sells instruments.",
        "The fee is 1,250.50 dollars.",
        "It is an Oregon company, Harrow & Vale.",
    ],
)
def test_what_the_text_says_is_supported(sentence: str) -> None:
    assert is_supported(sentence, [TEXT])


@pytest.mark.parametrize(
    "sentence",
    [
        "The survival rate is 98% at the hospital.",  # a number of nowhere
        "The agreement continues until February 28, 2030.",
        "The fee is 1,250 dollars.",  # the digits alone are not the number
        "Its name is Harrow & Vale, a Delaware corporation.",  # two facts from far apart
        "Patients usually recover after several weeks of treatment.",  # no fact, another topic
        "Yes.",
        "",
    ],
)
def test_what_the_text_does_not_say_is_not(sentence: str) -> None:
    assert not is_supported(sentence, ["Another passage about nothing.", TEXT])
    assert not is_supported(sentence, [])


def test_a_question_supports_nothing() -> None:
    """The name of the question is repeated in the answer; the document does not have it."""
    passage = GivenPassage(0, len(TEXT), "", TEXT, None)
    said = checked(
        "When does Nowhere sign?", "Here Nowhere signs on February 28, 2029. The fee is 1,250.50.", [passage]
    )
    assert said.text == "The fee is 1,250.50." and said.unsupported == ("Here Nowhere signs on February 28, 2029.",)
    assert checked("?", "", [passage]).text == ""


def test_facts_are_names_and_numbers() -> None:
    assert facts_of("London's is here. However, I saw Paris 1984.") == {"paris", "1984"}
    assert sentences_of("One is here. Two is there!\nThree") == ["One is here.", "Two is there!", "Three"]
