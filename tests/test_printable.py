"""No text of others makes a terminal obey, or forges a line."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from vcc.printable import printable, printable_lines

OBEYED = {"Cc", "Cs", "Zl", "Zp"}  # by Unicode's categories, an oracle of its own
TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    shown = printable(text)
    assert not {unicodedata.category(c) for c in shown} & OBEYED
    assert not {unicodedata.bidirectional(c) for c in shown} & TURNING
    assert printable(shown) == shown
    shown.encode()


def test_plain_words_stay_and_others_are_spelled_out() -> None:
    assert printable("Café “é” 東京 \U0001f600") == "Café “é” 東京 \U0001f600"
    assert printable("a\x1b[2J\nb\x9b\u202ec\udcff\x7f") == r"a\x1b[2J\nb\x9b\u202ec\udcff\x7f"
    assert printable_lines("a\n\x1bb") == "a\n\\x1bb"
