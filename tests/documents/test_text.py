import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcc.documents.text import Part, Text, join_pieces, normalise, without_overlaps

TEXT = (
    "Mr. Darcy came on the 3. of May. He spoke to Dr. A. Jones, who lives at No. 7 St. James St. in the town! "
    'Was it late?\n\nIt was. "Go away." She went\nhome at once'
)
ODD = "ab.\r\n\t\f\v \xa0\u00ad\ufeff\u200b\x00\x07\ufb01é\u0301e\ud800\udc00\u2028\u2029"
MESSY = st.text(alphabet=st.sampled_from(ODD))


def whole(text: str) -> Text:
    return Text(text, "t", "s", (Part("", 0, len(text)),))


def sentence_of(text: str, words: str) -> str:
    start = text.index(words)
    first, last = whole(text).sentence_around(start, start + len(words))
    return text[first:last]


@given(MESSY | st.text())
def test_normalising_twice_is_normalising_once(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    once.encode()  # no half surrogates are left
    assert not set(once) & set("\r\f\v\x00\ufeff\u00ad") and "\n\n\n" not in once


def test_normalising_keeps_the_words() -> None:
    messy = "\ufeffﬁrst\r\nline  \rsecond\fthird\xa0x\x00\n\n\n\n  y"
    assert normalise(messy) == "first\nline\nsecond\n\nthird x\n\n  y"


@given(st.lists(st.tuples(st.text(max_size=5), MESSY)))
def test_parts_cover_the_text_and_every_offset_has_its_part(pieces: list[tuple[str, str]]) -> None:
    text, parts = join_pieces(pieces)
    assert normalise(text) == text or any(body[0].isspace() for _, p in pieces if (body := normalise(p)))
    document = Text(text, "t", "s", parts)  # checks the cover itself
    assert "".join(text[part.start : part.end] for part in parts) == text
    for part in parts:
        assert all(document.part_at(offset) is part for offset in range(part.start, part.end))


def test_parts_with_a_gap_are_refused() -> None:
    with pytest.raises(ValueError, match="without gaps"):
        Text("abcdef", "t", "s", (Part("a", 0, 2), Part("b", 3, 6)))


def test_hash_is_the_sha256_of_the_text() -> None:
    assert whole("héllo").sha256 == hashlib.sha256("héllo".encode()).hexdigest()


def test_a_sentence_does_not_end_at_an_abbreviation_or_a_number() -> None:
    assert sentence_of(TEXT, "Darcy") == "Mr. Darcy came on the 3. of May."
    assert sentence_of(TEXT, "Jones").startswith("He spoke") and sentence_of(TEXT, "Jones").endswith("in the town!")


def test_a_sentence_ends_at_a_question_mark_a_quote_and_a_blank_line() -> None:
    assert sentence_of(TEXT, "late") == "Was it late?"
    assert sentence_of(TEXT, "It was") == "It was."
    assert sentence_of(TEXT, "away") == '"Go away."'
    assert sentence_of(TEXT, "home") == "She went\nhome at once"
    assert sentence_of(TEXT, "late?\n\nIt") == "Was it late?\n\nIt was."


def test_a_span_that_ends_in_its_full_stop_gains_nothing_after_it() -> None:
    assert sentence_of(TEXT, "It was.") == "It was."


def test_a_clause_number_does_not_end_a_sentence() -> None:
    text = "The end.\n\n12. Governing Law. This Agreement follows the law of France. More."
    assert sentence_of(text, "Law") == "12. Governing Law."


def test_a_sentence_without_end_is_cut_between_words() -> None:
    text = "word " * 1000
    cut = sentence_of(text[:3000] + "needle " + text, "needle")
    assert 600 < len(cut) < 1100 and set(cut.split()) == {"word", "needle"}


@given(st.text(alphabet="aB. \n\"'?!1"), st.integers(0, 200), st.integers(0, 200))
def test_a_sentence_holds_its_span_and_nothing_lies_outside_the_text(text: str, a: int, b: int) -> None:
    start, end = sorted((min(a, len(text)), min(b, len(text))))
    first, last = whole(text).sentence_around(start, end)
    assert 0 <= first <= start <= end <= last <= len(text)


def test_offsets_outside_the_text_are_refused() -> None:
    with pytest.raises(ValueError, match=r"0\.\.3"):
        whole("abc").part_at(4)
    with pytest.raises(ValueError, match=r"0\.\.3"):
        whole("abc").sentence_around(2, 9)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=12))
def test_without_overlaps_keeps_the_earlier_of_two_that_share_a_character(spans: list[tuple[int, int]]) -> None:
    named = list(enumerate((start, start + size) for start, size in spans))
    kept = list(without_overlaps(named, lambda one: one[1]))
    assert [number for number, _ in kept] == sorted(number for number, _ in kept)
    for number, (start, end) in named:
        before = [(first, last) for other, (first, last) in kept if other < number]
        assert ((number, (start, end)) in kept) == all(not set(range(start, end)) & set(range(*one)) for one in before)


def test_a_text_is_a_plain_value() -> None:
    text = whole("words")
    before = dict(vars(text))
    assert text.sha256 and text.part_at(0) and text.sentence_around(0, 2)
    assert vars(text) == before and text == whole("words") and hash(text) == hash(whole("words"))
