"""Hiding passages in long text."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcc.data.example import Example
from vcc.data.haystack import Generated, Paragraphs, hide

HAY = Paragraphs.of([(owner, f"{owner}{i} " * 10) for owner in "abc" for i in range(5)])


@settings(max_examples=60)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=5).map(sorted), st.integers(0, 9))
def test_hidden_passages_are_found_where_said_in_order_and_near_their_depth(depths, paragraphs):
    filler = [f"w{i} " * 9 + "end" for i in range(paragraphs)]
    passages = [f"passage {i}." for i in range(len(depths))]
    hidden = hide(passages, filler, depths)
    assert list(hidden.starts) == sorted(hidden.starts)
    for passage, start, depth in zip(passages, hidden.starts, depths, strict=True):
        assert hidden.document[start : start + len(passage)] == passage
        before = sum(word.startswith("w") or word == "end" for word in hidden.document[:start].split())
        assert abs(before - depth * 10 * paragraphs) <= 5  # a gap every 10 words: at most half of one away
    assert sorted(hidden.document.split("\n\n")) == sorted([*passages, *filler])


def test_running_text_keeps_its_order_and_stops_at_the_word():
    text = " ".join(HAY.running(np.random.default_rng(0), 73)).split()
    assert len(text) == 73
    owners = list(dict.fromkeys(text))
    every = [paragraph.split()[0] for paragraph in HAY.texts] * 2
    assert "".join(owners) in "".join(every)


def test_mixed_text_leaves_out_the_owner_and_repeats_only_at_need():
    text = HAY.mixed(np.random.default_rng(0), 100, without="a")
    assert len(text) == 10 == len(set(text)) and not any(paragraph.startswith("a") for paragraph in text)
    assert len(HAY.mixed(np.random.default_rng(0), 150, without="a")) == 15
    with pytest.raises(ValueError, match="there is no filler left"):
        Paragraphs.of([("a", "text")]).mixed(np.random.default_rng(0), 10, without="a")


def test_falling_depths_are_refused():
    with pytest.raises(ValueError, match="must rise"):
        hide(["a", "b"], ["c"], [0.5, 0.2])


def test_generated_examples_are_made_from_their_index_alone():
    examples = Generated(3, lambda i: Example(str(i), "q", "d"))
    assert [e.id for e in examples] == ["0", "1", "2"] == [e.id for e in examples[:]] and examples[-1].id == "2"
    with pytest.raises(IndexError):
        examples[3]
