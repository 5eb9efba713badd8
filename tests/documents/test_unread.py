"""What is skipped in reading, and what must not be: the text of contracts, lists and tables."""

import numpy as np
import pytest

from tests.documents import small_model
from vcc.documents.index import are_read
from vcc.documents.text import Part, Text, join_pieces
from vcc.documents.unread import unread

PROSE = "The supplier delivers the goods within thirty days of the order, at its own cost.\n"
TITLES = ["Introduction", "Scope of Work", "Payment", "Term and End", "Notices", "General Terms", "Signatures"]


def plain(text: str) -> Text:
    return Text(text, "t", "t.txt", (Part("", 0, len(text)),))


def skipped(text: Text) -> list[str]:
    return [text.text[a:b] for a, b in unread(text)]


def test_lines_with_leaders_and_page_numbers_are_skipped() -> None:
    table = [f"{i}. {title} . . . . . . . {3 * i}" for i, title in enumerate(TITLES, 1)]
    text = plain("Contents\n" + "\n".join(table) + "\n" + PROSE * 5)
    assert skipped(text) == table
    assert not unread(plain("Wait ........ 12\n" + PROSE)), "one such line may be anything"


def test_numbered_titles_that_stand_again_below_are_skipped_and_a_numbered_list_is_not() -> None:
    table = [f"{i}.1 {title}" for i, title in enumerate(TITLES, 1)]
    body = "".join(f"{i}.1 {title}\n{PROSE * 4}" for i, title in enumerate(TITLES, 1))
    assert skipped(plain("\n".join(table) + "\n" + PROSE * 4 + body)) == table
    assert not unread(plain(body)), "headings with their text"
    assert not unread(plain("\n".join(table) + "\n" + PROSE * 4)), "a list that is not repeated says something itself"


def test_an_index_is_skipped_and_a_table_with_numbers_is_not() -> None:
    names = "anchor apple bird boat cable chair desk door engine field gate hinge iron jar kettle lamp"
    words = names.split(" ")
    lines = [f"{word}, {i + 3}, {2 * i + 40}" for i, word in enumerate(words)]
    assert skipped(plain(PROSE + "\n".join(lines))) == lines
    assert not unread(plain(PROSE + "\n".join(lines[::-1]))), "not in alphabetical order"


def test_heads_that_return_on_pages_are_skipped() -> None:
    pages = [
        (f"page {i}", f"A Guide to Trees {i}\nOn page {name} the {name} tree is shown.\n{PROSE}{i}")
        for i, name in enumerate(["oak", "elm", "fir", "ash"], 1)
    ]
    body, parts = join_pieces(pages)
    text = Text(body, "t", "t.pdf", parts)
    found = skipped(text)
    assert {f"A Guide to Trees {i}" for i in range(1, 5)} <= set(found)
    assert not any("tree is shown" in one for one in found)


def test_heads_with_growing_numbers_are_skipped_in_a_text_without_pages() -> None:
    text = plain("".join(f"{PROSE * 3}The Long Guide      {i}\n" for i in range(1, 9)))
    assert skipped(text) == [f"The Long Guide      {i}" for i in range(1, 9)]
    assert not unread(plain("".join(f"{PROSE}Total of room {i}\n" for i in (70, 3, 900, 41, 8, 55)))), (
        "not page numbers"
    )


def test_tokens_of_the_rest_are_read_with_their_places() -> None:
    asker = small_model.asker()
    table = "\n".join(f"w{i} w{i + 1} . . . . . . {i}" for i in range(1, 9))
    document = plain(table + "\n" + small_model.text(60))
    index = asker.index(document)
    rest = asker.index(plain(small_model.text(60)))
    assert np.array_equal(index.ids, rest.ids) and np.array_equal(index.offsets, rest.offsets + len(table) + 1)
    assert asker.index(plain(table)).tokens > 0, "a text with nothing else is read"


@pytest.mark.parametrize("seed", range(5))
def test_tokens_are_kept_outside_the_stretches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.choice(100, 6, replace=False)).tolist()
    spans = list(zip(edges[::2], edges[1::2], strict=True))
    offsets = np.stack([np.arange(100), np.arange(100) + 1], 1)
    assert are_read(offsets, spans).tolist() == [not any(a <= i < b for a, b in spans) for i in range(100)]
    assert are_read(offsets, []).all()
