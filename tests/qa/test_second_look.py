"""Which passages get a second look, and what stands in their windows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vcc.core.cut import Cut
from vcc.core.tree import build_tree
from vcc.data.answers import ScoredSpan as Scored
from vcc.data.features import Frame
from vcc.data.framing import framed_places
from vcc.qa.agreement import View
from vcc.qa.second_look import (
    ALIKE,
    BEHIND,
    NEAR,
    Looks,
    best_nodes,
    every_passage,
    for_clauses,
    for_short_texts,
    look_again,
    passages_to_reread,
    with_a_chance,
)
from vcc.qa.windows import Found, batch, room
from vcc.testing import random_rows

FRAME = Frame(np.array([101]), np.array([102]), np.array([102]), 1)


def test_passages_surround_the_best_spans_and_no_span_is_looked_at_twice() -> None:
    spans = [Scored(50, 51, 3.0), Scored(52, 55, 2.0), Scored(10, 12, 1.0), Scored(99, 99, 0.0)]
    assert passages_to_reread([spans], 20, 100, looks=2) == [40, 1]
    assert passages_to_reread([spans], 20, 100, looks=3)[2] == 80, "the last passage ends with the document"
    assert passages_to_reread([[Scored(2, 4, 0.0)]], 20, 8, looks=1) == [0], "shorter than a passage"
    assert passages_to_reread([[], []], 20, 8, looks=1) == []
    assert passages_to_reread([spans], 0, 100, looks=2) == [], "no room beside the question"


def test_spans_without_a_chance_are_not_looked_at_but_the_best_one_is() -> None:
    far, near = ([Scored(5, 5, 0.0 - by), Scored(90, 90, 1.0 - by)] for by in (BEHIND + 2, BEHIND))
    assert len(passages_to_reread(with_a_chance(far, [], []), 10, 100, looks=6)) == 1
    assert len(passages_to_reread(with_a_chance(near, [], []), 10, 100, looks=6)) == 2


def test_spans_nodes_and_matching_words_take_turns() -> None:
    spans = [Scored(5, 5, 2.0), Scored(200, 202, 1.0), Scored(300, 300, 0.0)]
    nodes = [Scored(400, 415, 0.5), Scored(200, 215, 0.4), Scored(500, 515, 0.4 * NEAR)]
    matches = [Scored(704, 831, 9.0), Scored(832, 959, 9.0 * ALIKE), Scored(0, 127, 8.9 * ALIKE)]
    pointers = with_a_chance(spans, nodes, matches)
    found = passages_to_reread(pointers, 20, 1000, looks=9)
    assert found == [0, 397, 757, 191, 197, 885, 290], "the last node and the last match have no chance"
    assert passages_to_reread(pointers, 20, 1000, looks=3) == found[:3]


class Sure:
    """A reader that finds spans of a fixed lead in every passage, by question, and notes how many it was given."""

    def __init__(self, leads: list[float], ahead: int = 1) -> None:
        self.frame, self.size, self.leads, self.ahead = FRAME, 64, leads, ahead
        self.rounds: list[list[int]] = []

    def look_at_each(self, ids, questions, chosen, top, blank):  # type: ignore[no-untyped-def]
        self.rounds.append([sum(passage.question == i for passage in chosen) for i in range(len(questions))])
        return [[Found(p.start, p.start + 1, self.leads[p.question], 0.0)] for p in chosen]

    def rounds_for(self, first_leads: list[float], looks: Looks) -> int:
        """Asked about 20 places each, all with the lead that the first reading has given them."""
        questions = [np.arange(5)] * len(first_leads)
        spans = [[Found(at, at, lead, 0.0) for at in range(0, 2000, 100)] for lead in first_leads]
        nothing: list[list[Scored]] = [[] for _ in questions]
        rules = [looks] * len(questions)
        found, number = look_again(self, np.arange(2000), questions, spans, nothing, nothing, rules, 5)  # type: ignore[arg-type]
        self.found = found
        return number


LOOKS = Looks(12)
DECIDED, UNDECIDED = (LOOKS.clear + 1, LOOKS.hopeless - 1), (LOOKS.clear + LOOKS.hopeless) / 2


def test_a_question_that_is_decided_gets_no_more_looks() -> None:
    reader, looks = Sure([*DECIDED, UNDECIDED]), replace(LOOKS, least=2, few=4)
    assert reader.rounds_for([0.0] * 3, looks) == 2 + 4 + 12
    assert reader.rounds == [[1, 1, 1]] * 2 + [[0, 1, 1]] * 2 + [[0, 0, 1]] * 8


def test_each_kind_of_pointer_is_followed_before_a_clear_answer_ends_the_search() -> None:
    """The first passage is that of the best span; nodes or words may point to a better one."""
    reader, asked, ids = Sure([LOOKS.clear + 1]), [np.arange(5)], np.arange(2000)
    pointers = [
        [[Found(first, first, lead, 0.0) for first, lead in ((at, 2.0), (at + 100, 1.9))]] for at in (100, 800, 1500)
    ]
    found, number = look_again(reader, ids, asked, *pointers, [LOOKS], 5)  # type: ignore[arg-type]
    read = sorted(span.first for span in found[0])
    assert number == 3 and all(start < at < start + 64 for start, at in zip(read, (100, 800, 1500), strict=True))


@pytest.mark.parametrize("ahead", [2, 5, 12])
def test_reading_ahead_takes_fewer_rounds_and_changes_no_answer(ahead: int) -> None:
    leads, looks = [*DECIDED, UNDECIDED, 7.0], replace(LOOKS, still_clear=4.0)
    one_by_one, reader = Sure(leads), Sure(leads, ahead)
    number = one_by_one.rounds_for([0.0] * 4, looks)
    assert reader.rounds_for([0.0] * 4, looks) > number, "some are read for nothing"
    assert reader.found == one_by_one.found and len({len(found) for found in reader.found}) > 1
    assert len(reader.rounds) == -(-12 // ahead) < len(one_by_one.rounds) == 12


def test_no_question_gets_more_looks_than_there_are() -> None:
    reader = Sure([0.0])
    assert reader.rounds_for([0.0], Looks(2)) == 2 and reader.rounds == [[1], [1]]
    assert Sure([0.0]).rounds_for([0.0], Looks(0)) == 0
    assert Sure([0.0]).rounds_for([0.0], Looks(5, few=1)) == 5


def test_clauses_are_looked_for_at_all_places_and_after_two_hopeless_ones_no_more() -> None:
    looks = for_clauses(12)
    reader = Sure([5.0, 50.0, -1.0])
    assert reader.rounds_for([0.0, 20.0, 0.0], looks) == 12 + 12 + 2
    assert reader.rounds == [[1, 1, 1]] * 2 + [[1, 1, 0]] * 10
    assert for_clauses(3).most == 3


@pytest.mark.parametrize("leads,read", [([9, 9], 7), ([-5, 9], 7), ([9, -5, -5, -5, 9], 10), ([-5, -5, 9], 2)])
def test_the_search_for_a_clause_ends_when_five_passages_have_none(leads: list[float], read: int) -> None:
    looks, views = for_clauses(12), list[View]()
    for lead in [*leads, *[-5.0] * 9]:
        if not looks.undecided(views):
            break
        views.append(View(0, 9, [Found(0, 1, lead, 0.0), Found(4, 5, -9.0, 0.0)]))
    assert len(views) == read


def test_a_clear_answer_ends_the_search_for_a_clause_if_one_is_enough() -> None:
    reader = Sure([5.0, 50.0, -1.0])
    assert reader.rounds_for([0.0, 20.0, 0.0], for_clauses(12, several=False)) == 3 + 1 + 2
    assert Sure([5.0]).rounds_for([0.0], replace(LOOKS, still_clear=6.0)) == 12, "the bar does not sink further"


def test_in_short_texts_weak_pointers_are_followed_too() -> None:
    hopeless = -BEHIND - 1  # as a span's lead: without a chance but for the first
    looks = for_short_texts(12)
    reader, careful = Sure([*DECIDED, UNDECIDED]), Sure([UNDECIDED])
    assert reader.rounds_for([hopeless] * 3, looks) == 1 + looks.few + 5
    assert Sure([5.0]).rounds_for([hopeless], looks) == 3, "the longer the search, the lower the bar"
    assert Sure([-1.0]).rounds_for([hopeless], looks) == 12
    assert careful.rounds_for([hopeless], LOOKS) == 1, "in long ones they are not"


@given(st.integers(1, 3000), st.integers(4, 600))
def test_passages_cover_a_text_and_share_two_fifths_with_their_neighbours(n: int, size: int) -> None:
    starts = every_passage(n, size)
    assert starts[0] == 0 and starts[-1] + size >= n and (len(starts) == 1 or starts[-1] + size == n)
    assert all(a < b <= a + size - size * 2 // 5 for a, b in zip(starts, starts[1:], strict=False))
    assert len(starts) == 1 + max(0, -(-(n - size) // (size * 3 // 5))), "not more of them than that takes"


def test_nodes_are_spans_of_the_document() -> None:
    """Windows of 16 tokens between two special ones; of 3 questions each sees 2 of 4 coarse nodes' children."""
    tree = build_tree(random_rows(3, 64), (16, 4, 1))
    wanted = torch.tensor([[0, 3], [1, 2], [0, 1]])
    shares = torch.rand(3, 8)
    cut = Cut((wanted, wanted), (), (wanted, wanted), (), (torch.rand(3, 4), shares))
    places = framed_places(56, 16, FRAME)
    for i, some in enumerate(best_nodes(cut, tree, places, 3)):
        order = shares[i].argsort(descending=True)[:3].tolist()
        nodes = [int(wanted[i, j // 4]) * 4 + j % 4 for j in order]
        assert [one.score for one in some] == shares[i, order].tolist()
        for one, node in zip(some, nodes, strict=True):
            inside = [t for t, place in enumerate(places) if place // 4 == node]
            assert (one.first, one.last) == (inside[0], inside[-1])


def test_windows_hold_the_question_and_the_passage() -> None:
    document, questions = np.arange(1000, 1030), [np.array([7, 8]), np.array([9])]
    rooms = [room(question, FRAME, 10) for question in questions]
    given = batch([(questions[0], document[3 : 3 + rooms[0]]), (questions[1], document[28 : 28 + rooms[1]])], FRAME)
    assert given.ids[0].tolist() == [101, 7, 8, 102, 1003, 1004, 1005, 1006, 1007, 102]
    assert given.ids[1].tolist() == [101, 9, 102, 1028, 1029, 102, 0, 0, 0, 0]
    assert given.mask[1].tolist() == [1] * 6 + [0] * 4
    assert given.types[0].tolist() == [0] * 4 + [1] * 6 and given.types[1, :6].tolist() == [0, 0, 0, 1, 1, 1]
    assert torch.equal(given.first, torch.tensor([4, 3])) and torch.equal(given.end, torch.tensor([9, 5]))


def test_a_question_may_leave_no_room() -> None:
    assert [room(np.arange(n), FRAME, 10) for n in (0, 6, 7, 20)] == [7, 1, 0, 0]
