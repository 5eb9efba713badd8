"""Which passages get a second look, and what stands in their windows."""

import numpy as np
import torch

from vcc.data.answers import ScoredSpan as Lead  # whose score is its lead over no answer
from vcc.data.features import Frame
from vcc.documents.close_reading import BEHIND, TRUST, Passage, batch, passages, room

FRAME = Frame(np.array([101]), np.array([102]), np.array([102]), 1)


def test_passages_surround_the_best_spans_and_no_span_is_looked_at_twice() -> None:
    spans = [[Lead(50, 51, 3.0), Lead(52, 55, 2.0), Lead(10, 12, 1.0), Lead(99, 99, 0.0)], [Lead(0, 3, 0.0)]]
    assert passages(spans, [20, 10], 100, looks=2) == [Passage(0, 40, 3.0), Passage(0, 1, 1.0), Passage(1, 0, 0.0)]
    assert passages(spans, [20, 10], 100, looks=3)[2] == Passage(0, 80, 0.0), "the last passage ends with the document"
    assert passages([[Lead(2, 4, 0.0)]], [20], 8, looks=1) == [Passage(0, 0)], "a document shorter than a passage"
    assert passages([[]], [20], 8, looks=1) == []


def test_spans_without_a_chance_are_not_looked_at_but_the_best_one_is() -> None:
    spans = [[Lead(5, 5, -BEHIND - 1), Lead(90, 90, -BEHIND - 1)], [Lead(5, 5, 0.0), Lead(90, 90, -BEHIND + 1)]]
    assert [passage.question for passage in passages(spans, [10, 10], 100, looks=6)] == [0, 1, 1]


def test_both_readings_judge_a_span() -> None:
    assert Passage(0, 40, lead=3.0).judge(Lead(5, 7, 1.0), by=36) == Lead(41, 43, 1.0 + 3.0 * TRUST)


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
