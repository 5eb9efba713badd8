import io
import json
import lzma
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from vcc.documents import read_document
from vcc.documents.answer import Answer, Reply, answer_at, as_dict, excerpt, merge_overlaps
from vcc.documents.show.report import report_html
from vcc.documents.show.terminal import print_replies, print_review
from vcc.documents.text import Part, Text
from vcc.qa.clauses import CLAUSES

TEXT = "The term is short.  This Agreement is governed by\nthe laws of [Kent], and by no other law. The end."
DOCUMENT = Text(TEXT, "A Deed", "deed.txt", (Part("page 1", 0, 40), Part("page 2", 40, len(TEXT))), ("a note",))
EXAMPLES = Path(__file__).parents[2] / "examples"
DATA = Path(os.environ.get("VCC_DATA", Path(__file__).parents[3] / "shared/data"))


def found(words: str, score: float = 0.9, sure: bool = True) -> Answer:
    start = TEXT.index(words)
    return answer_at(DOCUMENT, start, start + len(words), score, sure)


def printed(show, replies: list[Reply], width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(console, DOCUMENT, replies, {"tokens": "21", "time": "0.1 s"})
    return console.file.getvalue()


def test_an_answer_loses_its_outer_blanks_and_knows_its_part() -> None:
    start = TEXT.index("\nthe laws")
    answer = answer_at(DOCUMENT, start, start + len("\nthe laws "), 0.5)
    assert (answer.text, answer.place, TEXT[answer.start : answer.end]) == ("the laws", "page 2", "the laws")
    blank = TEXT.index("  This")
    assert answer_at(DOCUMENT, blank, blank + 2, 0.5).text == ""
    with pytest.raises(ValueError, match="non-empty"):
        answer_at(DOCUMENT, 5, 5, 0.5)


@pytest.mark.parametrize(
    ("label", "page"), [("page 3", 3), ("b.pdf · page 12", 12), ("page 3 of the annex", None), ("3. Terms", None)]
)
def test_a_page_is_known_by_the_label_of_its_part(label: str, page: int | None) -> None:
    answer = answer_at(Text("It ends.", "t", "s", (Part(label, 0, 8),)), 0, 2, 0.5)
    assert (answer.place, answer.page) == (label, page)


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9), st.sampled_from([0.1, 0.5, 0.9])), max_size=12)


@given(spans, st.none() | st.integers(0, 3))
def test_merged_answers_are_disjoint_and_sorted_and_every_loser_overlaps_a_better_one(
    spans: list[tuple[int, int, float]], top: int | None
) -> None:
    answers = [Answer("x", start, start + size, score, "", None, "x") for start, size, score in spans]
    kept = merge_overlaps(answers)
    assert merge_overlaps(answers, top) == kept[:top]
    assert [a.score for a in kept] == sorted((a.score for a in kept), reverse=True)
    taken = [place for a in kept for place in range(a.start, a.end)]
    assert len(taken) == len(set(taken))
    for loser in set(answers) - set(kept):
        assert any(a.score >= loser.score and a.start < loser.end and loser.start < a.end for a in kept)


def test_an_excerpt_is_the_sentence_on_one_line() -> None:
    assert excerpt(DOCUMENT, found("the laws of [Kent]")) == (
        "This Agreement is governed by ",
        "the laws of [Kent]",
        ", and by no other law.",
    )


def test_a_long_excerpt_is_shortened_between_words_and_keeps_the_answer() -> None:
    text = "aaa " * 200 + "needle " * 200 + "bbb " * 200
    document = Text(text, "t", "s", (Part("", 0, len(text)),))
    start = text.index("needle")
    before, inside, after = excerpt(document, answer_at(document, start, text.index("bbb"), 1.0), 50, 100)
    assert before.startswith("… aaa") and after.endswith("bbb …") and len(before) <= 54 and len(after) <= 54
    assert set(inside.split()) == {"needle", "…"} and len(inside) < 110


def test_json_holds_every_answer_and_says_when_there_is_none() -> None:
    replies = [Reply("Which law?", (found("Kent"),)), Reply("Who?", ())]
    value = json.loads(json.dumps(as_dict(DOCUMENT, replies)))
    assert value["document"]["sha256"] == DOCUMENT.sha256 and value["document"]["notes"] == ["a note"]
    first, second = value["replies"]
    assert second == {"question": "Who?", "name": "", "group": "", "answers": []}
    start = TEXT.index("Kent")
    assert first["answers"] == [
        {
            "text": "Kent",
            "start": start,
            "end": start + 4,
            "score": 0.9,
            "place": "page 2",
            "page": 2,
            "sentence": "This Agreement is governed by the laws of [Kent], and by no other law.",
            "sure": True,
            "boxes": [],
        }
    ]
    assert Answer.from_dict(first["answers"][0]) == found("Kent")


def test_the_terminal_shows_sentence_place_score_and_no_answer() -> None:
    out = printed(print_replies, [Reply("Which law?", (found("the laws of [Kent]", 0.97),)), Reply("Who [x]?", ())])
    assert "This Agreement is governed by »the laws of [Kent]«, and by no other law." in out  # brackets are no markup
    assert "0.97  page 2" in out and "Who [x]?" in out and "no answer found" in out
    assert "tokens 21 · time 0.1 s" in out and "note: a note" in out


def test_the_nearest_is_shown_as_no_answer() -> None:
    replies = [Reply("Which law?", (), nearest=found("Kent", sure=False))]
    out = printed(print_replies, replies)
    assert "no sure answer; the nearest, page 2:" in out and "»Kent«" in out
    (reply,) = as_dict(DOCUMENT, replies)["replies"]
    assert [(answer["text"], answer["sure"]) for answer in reply["answers"]] == [("Kent", False)]
    page = report_html(DOCUMENT, replies, {})
    assert "no sure answer; the nearest, page 2:" in page and "<u>Kent</u>" in page
    assert "the nearest" not in report_html(DOCUMENT, [replace(replies[0], name="Governing law")], {})


def test_colours_light_up_the_answer_and_signs_do_without_them() -> None:
    text = "The inn stood in Kent. It burnt down."
    document = Text(text, "inn", "inn.txt", (Part("", 0, len(text)),))
    replies = [Reply("Where?", (answer_at(document, 17, 21, 0.9),))]
    shown = {}
    for colours in (None, "standard"):
        console = Console(file=io.StringIO(), width=60, color_system=colours, force_terminal=colours is not None)
        print_replies(console, document, replies, {})
        shown[colours] = console.file.getvalue()
    assert "The inn stood in »Kent«.\n" in shown[None] and "46% into the text" in shown[None]
    assert "»" not in shown["standard"] and "\x1b[1;30;43mKent\x1b[0m." in shown["standard"]


def test_the_review_table_lists_what_was_found_and_what_was_not() -> None:
    replies = [
        Reply("q1", (found("Kent"), found("short", 0.2)), "Governing law", "The contract"),
        Reply("q2", (), "Audit", "Money"),
        Reply("q3", (), "Insurance", "Liability"),
    ]
    out = printed(print_review, replies)
    assert "Governing law" in out and "Kent" in out and "0.20" in out and "The contract" in out
    assert "not found (2): Audit, Insurance" in out and "Money" not in out


def test_the_clauses_are_those_of_the_data_to_the_letter() -> None:
    assert len(CLAUSES) == len({clause.name for clause in CLAUSES}) == 41
    path = DATA / "cuad/validation.jsonl.xz"
    if not path.exists():
        pytest.skip(f"no CUAD data at {path}; set VCC_DATA to the data folder")
    with lzma.open(path, "rt") as lines:
        records = [json.loads(line) for line in lines]
    assert {(c.category, c.question) for c in CLAUSES} == {(r["category"], r["question"]) for r in records}


def test_the_examples_are_read_with_their_sections_and_chapters() -> None:
    contract = read_document(EXAMPLES / "contract.txt")
    law = contract.text.index("the laws of the State of New Hampshire")
    assert contract.part_at(law).label == "15. GENERAL · 15.3 Governing law"
    novel = read_document(EXAMPLES / "wuthering-heights.txt")
    assert [part.label for part in novel.parts] == ["beginning", *(f"CHAPTER {n}" for n in range(1, 35))]
    assert novel.part_at(novel.text.index("streets of Liverpool")).label == "CHAPTER 4"
