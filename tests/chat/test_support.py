"""What a model wrote counts as supported only where the passages say it."""

import pytest

from tests.documents.small_model import saved
from vcc.chat.passages import GivenPassage
from vcc.chat.support import facts_of, is_supported, sentences_of
from vcc.chat.talk import checked
from vcc.documents.document import Document
from vcc.documents.text import Part, Text

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


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    return Document(Text(TEXT, "a", "a", (Part("", 0, len(TEXT)),)), saved(tmp_path_factory.mktemp("model")))


def test_a_question_supports_nothing(document: Document) -> None:
    """The name of the question is repeated in the answer; the document does not have it."""
    passage = GivenPassage(0, len(TEXT), "", TEXT, None)
    said = checked(
        document, "When does Nowhere sign?", "Here Nowhere signs on February 28, 2029. The fee is 1,250.50.", [passage]
    )
    assert said.text == "The fee is 1,250.50." and said.unsupported == ("Here Nowhere signs on February 28, 2029.",)
    assert checked(document, "?", "", [passage]).text == ""


def test_every_sentence_carries_the_verdict_of_the_document(document: Document) -> None:
    """A quote is kept although its passage was not given; a changed quote is lost although its words were."""
    passage = GivenPassage(0, 36, "", "2030 is another year. " + TEXT, None)
    wrote = "The agreement continues until February 28, 2029. The agreement continues until February 28, 2030."
    said = checked(document, "?", wrote, [passage])
    assert [(one.verdict, one.by) for one in said.verdicts] == [("supported", "exact quote")]
    assert said.unsupported == ("The agreement continues until February 28, 2030.",)
    assert checked(document, "?", TEXT.split(". ")[1] + ".", []).verdicts[0].verdict == "supported"


def test_facts_are_names_and_numbers() -> None:
    assert facts_of("London's is here. However, I saw Paris 1984.") == {"paris", "1984"}
    assert sentences_of("One is here. Two is there!\nThree") == ["One is here.", "Two is there!", "Three"]
