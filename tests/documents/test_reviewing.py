"""A review shows as many answers as a contract has, and splits two parties in one span."""

from typing import Any

from vcc.documents.answer import Reply, answer_at
from vcc.documents.question_list import CLAUSE_QUESTIONS
from vcc.documents.reviewing import ONCE, PARTIES, SEVERAL, ask_list, most_answers, reviewed
from vcc.documents.text import Part, Text
from vcc.qa.clauses import CLAUSES

WORDS = 'Acme, Inc. ("Seller") and Beta Limited agree. The cap is $5. Another cap is $7. A third is $9.'
TEXT = Text(WORDS, "a", "a.txt", (Part("", 0, len(WORDS)),))
QUESTIONS = {clause.category: clause.question for clause in CLAUSES}


def reply(question: str, *spans: str) -> Reply:
    found = (answer_at(TEXT, WORDS.index(span), WORDS.index(span) + len(span), 0.9) for span in spans)
    return Reply(question, tuple(found))


def shown(given: Reply, top: int | None = None) -> list[str]:
    return [answer.text for answer in reviewed(TEXT, given, top).answers]


def test_two_parties_in_one_span_are_two_answers_and_a_defined_term_is_none() -> None:
    both = 'Acme, Inc. ("Seller") and Beta Limited'
    assert shown(reply(PARTIES, both, "Seller")) == ["Acme, Inc.", "Beta Limited"]
    assert shown(reply(PARTIES, "Acme, Inc.", both)) == ["Acme, Inc.", "Beta Limited"], "each party once"
    assert shown(reply(PARTIES, "Seller")) == ["Seller"], "better than nothing"
    for answer in reviewed(TEXT, reply(PARTIES, both), None).answers:
        assert WORDS[answer.start : answer.end] == answer.text and answer.score == 0.9


def test_a_clause_that_comes_several_times_shows_all_and_another_one_its_best() -> None:
    caps = ("$5", "$7", "$9")
    assert shown(reply(QUESTIONS["Cap On Liability"], *caps)) == list(caps)
    assert shown(reply(QUESTIONS["Effective Date"], *caps)) == ["$5"]
    assert shown(reply("How much is the cap?", *caps)) == ["$5"], "a question of the user's own"
    assert shown(reply(QUESTIONS["Cap On Liability"], *caps), top=2) == ["$5", "$7"]


def test_every_clause_that_comes_once_is_one_of_the_list() -> None:
    assert set(QUESTIONS) >= ONCE and len(SEVERAL) == len(CLAUSE_QUESTIONS) - len(ONCE)


def test_a_list_asks_for_as_many_answers_as_it_may_show() -> None:
    class Asked:
        content = TEXT

        def answer(self, questions: Any, top: int, threshold: Any, progress: Any, thorough: bool) -> Any:
            self.top = top
            return [reply(question, "$5", "$7") for question in questions], None

    document: Any = Asked()
    found, _ = ask_list(document, CLAUSE_QUESTIONS[:3])
    assert document.top == most_answers([PARTIES], None) > 1 and [one.name for one in found][:1]
    ask_list(document, CLAUSE_QUESTIONS, 2)
    assert document.top == 2
