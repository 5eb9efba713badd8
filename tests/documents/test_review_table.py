"""Tables of many documents: what goes into a cell, and the lists of questions that make the columns."""

import json
from pathlib import Path

import pytest

from vcc.documents.answer import Reply, answer_at
from vcc.documents.question_list import CLAUSE_QUESTIONS, read_questions
from vcc.documents.review_table import Question, ReviewRow, ReviewTable, row_of
from vcc.documents.text import Text, join_pieces
from vcc.errors import UsageError


def contract() -> Text:
    words, parts = join_pieces(
        [("page 1", "A contract.\nIt is  signed."), ("page 2", "The law of Vermont governs it.")]
    )
    return Text(words, "contract", "contract.pdf", parts, ("no text on page 3",))


def test_a_row_has_the_answer_its_sentence_and_its_page() -> None:
    text = contract()
    start = text.text.index("Vermont")
    answer = answer_at(text, start, start + 7, 0.875)
    doubtful = answer_at(text, start, start + 7, 0.125, sure=False)
    row = row_of(text, [Reply("Which law?", (answer,)), Reply("When?", (), nearest=doubtful), Reply("Who?", ())])
    (law,), (when,), who = row.cells
    assert (law.text, law.sentence, law.page, law.place) == ("Vermont", "The law of Vermont governs it.", 2, "page 2")
    assert (law.score, law.sure, when.sure, who) == (0.875, True, False, ())
    assert row.notes == ("no text on page 3",)
    assert text.text[law.start : law.end] == "Vermont"
    plain = json.loads(json.dumps(row.as_dict()))
    assert plain["cells"] == [[law.as_dict()], [when.as_dict()], []] and set(plain) == set(vars(row))


def test_a_row_that_does_not_fit_the_questions_is_refused() -> None:
    questions = (Question("Who?"), Question("When?"))
    with pytest.raises(ValueError, match="has 1 cells, not 2"):
        ReviewTable(questions, (ReviewRow("a", cells=((),)),))
    assert ReviewTable(questions, (ReviewRow("a", error="is empty"),)).rows[0].error == "is empty"


LISTS = {
    "plain.yaml": "- Which law?\n- Who signs?\n",
    "named.yml": "Law: Which law?\nSigned: Who signs?\n",
    "full.yaml": "- question: Which law?\n  name: Law\n- {question: 'Who signs?', name: Signed, group: People}\n",
    "full.csv": "\ufeffname,question,group\r\nLaw,Which law?,\r\nSigned,Who signs?,People\r\n",
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_questions_in_every_shape(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(LISTS[name], encoding="utf-8")
    found = read_questions(tmp_path / name)
    assert [question.question for question in found] == ["Which law?", "Who signs?"]
    assert [question.name for question in found] == (["", ""] if name == "plain.yaml" else ["Law", "Signed"])
    assert found[1].group == ("People" if name.startswith("full") else "")


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("a.txt", "Which law?", "must be .yaml or .csv"),
        ("a.yaml", "", "must be a list of questions"),
        ("a.yaml", "[]", "has no questions"),
        ("a.yaml", "- [1, 2]", "entry 1"),
        ("a.yaml", "- {question: x, colour: red}", "colour"),
        ("a.yaml", "- {name: x}", "no question"),
        ("a.yaml", "a: [", "not valid YAML"),
        ("a.yaml", "- !!python/object/apply:os.getcwd []", "not valid YAML"),
        ("a.yaml", "- Which?\n- Which?", "twice"),
        ("a.csv", "Which law?\n", "question must be one of them"),
        ("a.csv", "question\n  \n", "has no words"),
        ("a.csv", "question,name\n,Law\n", "has no words"),
        ("a.csv", 'question\n"a', "not valid CSV"),
    ],
)
def test_a_wrong_list_says_what_is_wrong(tmp_path: Path, name: str, content: str, rule: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=rule):
        read_questions(tmp_path / name)


def test_the_clauses_are_a_list_like_any_other() -> None:
    assert len(CLAUSE_QUESTIONS) == 41
    assert len({question.heading for question in CLAUSE_QUESTIONS}) == 41
