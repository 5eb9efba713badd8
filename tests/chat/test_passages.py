"""Passages are whole sentences around what was found, no words twice, and no more than there is room for."""

from vcc.chat.passages import fitting, merged, passage_at
from vcc.chat.talk import prompt
from vcc.documents.answer import answer_at
from vcc.documents.text import Text, join_pieces

SENTENCES = [f"This is sentence number {i} of the text, and it says {i * 7}." for i in range(60)]
BODY, PARTS = join_pieces([("page 1", " ".join(SENTENCES[:30])), ("page 2", " ".join(SENTENCES[30:]))])
TEXT = Text(BODY, "Sentences", "sentences.txt", PARTS)


def answers(*found: tuple[int, float]) -> list:
    starts = [(BODY.index(f"number {number} "), score) for number, score in found]
    return [answer_at(TEXT, start, start + 8, score) for start, score in starts]


def words(text: str) -> int:
    return len(text.split())


def test_passages_hold_their_spans_in_whole_sentences() -> None:
    for passage in merged(TEXT, answers((5, 0.9), (40, 0.5)), around=100):
        assert BODY[passage.start : passage.end] == passage.text
        assert passage.text.startswith("This is") and passage.text.endswith(".")
    [first, second] = merged(TEXT, answers((40, 0.5), (5, 0.9)), around=100)
    assert "number 5 " in first.text and first.part == "page 1" and first.score == 0.9
    assert "number 40 " in second.text and second.part == "page 2"


def test_passages_that_meet_become_one() -> None:
    for order in ((5, 7, 9), (9, 5, 7), (5, 9, 7)):
        [one] = merged(TEXT, answers(*((number, 0.1 * number) for number in order)), around=80)
        assert all(f"number {number} " in one.text for number in order) and one.score == 0.9
    chain = merged(TEXT, answers((2, 0.9), (20, 0.8), (11, 0.7), (50, 0.6)), around=60)
    edges = sorted((one.start, one.end) for one in chain)
    assert all(end < start for (_, end), (start, _) in zip(edges, edges[1:], strict=False))


def test_only_what_there_is_room_for_is_kept_and_at_least_one() -> None:
    found = merged(TEXT, answers((5, 0.9), (20, 0.8), (40, 0.7), (55, 0.6)), around=150)
    sizes = [words(one.text) for one in found]
    kept = fitting(TEXT, found, sum(sizes[:2]), words)
    assert kept == tuple(found[:2])
    [cut] = fitting(TEXT, found, 10, words)
    assert 0 < words(cut.text) <= 10 and "number 5 " in cut.text and cut.text in found[0].text
    [start] = fitting(TEXT, [passage_at(TEXT, 0, len(BODY), None)], 10, words)
    assert 0 < words(start.text) <= 10 and BODY.startswith(start.text)
    smaller = fitting(TEXT, [found[0], passage_at(TEXT, 0, len(BODY), None), found[1]], sum(sizes[:2]), words)
    assert smaller == (found[0], found[1]), "one that does not fit does not keep out the next"


def test_the_best_passage_stands_next_to_the_question() -> None:
    found = merged(TEXT, answers((5, 0.9), (40, 0.5)), around=50)
    asked = prompt(found, "number 5", "Which number?")
    assert asked.index("number 40 ") < asked.index("number 5 ") < asked.index("Question: Which number?")
    assert (
        asked.index("Question") < asked.index('Hint: "number 5"') and "hint" not in prompt(found, "", "Which?").lower()
    )
