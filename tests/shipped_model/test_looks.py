"""A rule that is replayed gives what the product gives with that rule."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from shipped_model.data import TokenQuestion, Unit
from shipped_model.looks import ReadContract, Replayed, Seconds, first_reading, replay, total
from tests.documents import small_model
from vcc.qa.agreement import View
from vcc.qa.model import QaModel
from vcc.qa.second_look import Looks, look_again
from vcc.qa.windows import Found
from vcc.qa.words import best_matches

RULES = [
    Looks(12, 3),
    Looks(4, 2, hopeless=0.0, clear=math.inf),
    Looks(5, 1, hopeless=-100.0, clear=100.0, share=0.5),
    Looks(8, 3, hopeless=100.0),
    Looks(12, 2, hopeless=2.0, recent=2, clear=math.inf),
]


@pytest.mark.parametrize("looks", RULES)
def test_a_replayed_rule_is_that_rule(looks: Looks) -> None:
    model = small_model.model(settings=replace(small_model.SETTINGS, dense_below=17))
    small_model.set_qa(model, second_looks=12)
    qa = QaModel(model, small_model.tokenizer())
    rng = np.random.default_rng(3)
    ids, asked = rng.integers(5, 60, 300), [rng.integers(5, 60, n) for n in (2, 5, 1)]
    unit = Unit(ids, tuple(TokenQuestion(question, ()) for question in asked))
    with torch.inference_mode():
        replayed = replay(qa, unit, (0.5, 1.0), Seconds())
        tree = qa.read([ids])
        spans, nodes = first_reading(qa, tree, unit, asked)
        matches = best_matches(ids, asked, qa.settings.matches)
        expected, number = look_again(qa.windows, ids, asked, spans, nodes, matches, [looks] * 3, 20)
    followed = [one.follow(looks, 20) for one in replayed]
    assert sum(some for _, some in followed) == number
    for (found, _), right in zip(followed, expected, strict=True):
        assert [(one.first, one.last) for one in found] == [(one.first, one.last) for one in right]
        assert [one.score for one in found] == pytest.approx([one.score for one in right], abs=1e-4)


def test_what_was_read_is_kept_whole() -> None:
    found = [Found(3, 5, 1.25, -0.5), Found(0, 2, -7.0, 0.1)]
    seconds = Seconds(1.0, 2.0, 3.0, {0.5: (4.0, 6), 1.0: (5.0, 7)})
    read = ReadContract("300", [Replayed(found[:1], {0.5: [View(2, 9, found)], 1.0: []})], [found, []], seconds)
    assert ReadContract.from_line(read.to_line()) == read
    assert total([seconds, seconds]) == Seconds(2.0, 4.0, 6.0, {0.5: (8.0, 12), 1.0: (10.0, 14)})
