"""Lessons hold the answer where they say, a passage without the answer holds it nowhere, a teacher is heard, and a
window that begins later holds the same answer."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForQuestionAnswering

from shipped_model import practice
from shipped_model.data import TokenQuestion, Unit
from shipped_model.practice import (
    Practice,
    Teacher,
    agreement_loss,
    all_apart,
    later_view,
    places_loss,
    practice_loss,
)
from vcc.data.features import Frame

FRAME = Frame(np.array([101]), np.array([102]), np.array([102]), 1)


def made(length: int, number: int = 6) -> Practice:
    """Each text has its own answer, tokens 200 + i, at its own place."""
    rng = np.random.default_rng(length)
    units = []
    for i in range(number):
        ids = rng.integers(300, 400, length)
        ids[10 + i : 12 + i] = 200 + i
        units.append(Unit(ids, (TokenQuestion(np.array([7, 8, 9]), ((10 + i, 11 + i),), number=i),), owner=i // 3))
    filler = [rng.integers(500, 600, 5000)]
    return Practice({"a_train": units}, {"a_train": 1.0}, filler, FRAME)


@pytest.mark.parametrize("length", [60, 2000])
def test_answers_stand_where_lessons_say(length: int) -> None:
    lessons, chance = made(length), random.Random(0)
    some = [lessons.lesson(chance) for _ in range(300)]
    batch = lessons.collate(some)
    assert 0.05 < np.mean([not lesson.spans for lesson in some]) < 0.3
    for i, lesson in enumerate(some):
        start, end = batch.right[0, i].nonzero().item(), batch.right[1, i].nonzero().item()
        inside = batch.ids[i, start : end + 1].tolist()
        if lesson.spans:
            assert len(set(inside)) == 1 and inside[0] in range(200, 206) and len(inside) == 2
        else:
            assert (start, end) == (0, 0), "the CLS token stands for no answer"
        assert len(lesson) <= practice.SIZE and batch.outside[i, 1:5].all() and not batch.outside[i, 0]


def test_a_passage_without_the_answer_holds_it_nowhere() -> None:
    lessons, chance = made(60), random.Random(0)
    units = lessons.units["a_train"]
    for i, unit in enumerate(units):
        for _ in range(20):
            other = lessons.unanswered("a_train", unit, unit.questions[0], 400, chance)
            assert other is not None and 200 + i not in other.passage, "another text of the same owner"
    lessons.owned["a_train"][0] = [units[0], replace(units[1], ids=np.concatenate([units[1].ids, units[0].ids]))]
    assert lessons.unanswered("a_train", units[0], units[0].questions[0], 400, chance) is None, (
        "the only other holds it"
    )


def test_the_paragraph_without_the_answer_is_one_like_the_question() -> None:
    asked = TokenQuestion(np.array([7, 8, 9]), ((0, 0),))
    own, alike = Unit(np.full(20, 200), (asked,)), Unit(np.array([7, 8, *range(300, 318)]), ())
    others = [Unit(np.arange(300 + i, 320 + i), ()) for i in range(3)]
    lessons = Practice({"a_train": [own, *others, alike]}, {"a_train": 1.0}, (), FRAME)
    made = [lessons.unanswered("a_train", own, asked, 400, random.Random(i)) for i in range(20)]
    assert all(lesson is not None and lesson.passage is not None and 8 in lesson.passage for lesson in made)


def test_a_window_without_the_answer_often_holds_the_answer_to_another_question() -> None:
    ids = np.arange(300, 4300)
    asked = (TokenQuestion(np.array([7]), ((50, 52),)), TokenQuestion(np.array([8]), ((3000, 3004),)))
    lessons = Practice({"a_train": [Unit(ids, asked)]}, {"a_train": 1.0}, (), FRAME)
    chance = random.Random(0)
    made = [lessons.unanswered("a_train", Unit(ids, asked), asked[0], 400, chance) for _ in range(400)]
    windows = [lesson.passage for lesson in made if lesson is not None]
    assert all(len(window) == 400 and 350 not in window for window in windows)
    beside = sum(3300 in window and 3304 in window for window in windows) / len(windows)
    assert 0.4 < beside < 0.8, "half of them, and some of the others by chance"


def test_the_loss_is_cross_entropy_with_the_right_places_and_with_the_teachers_chances() -> None:
    lessons, chance = made(60), random.Random(2)
    unit = lessons.units["a_train"][0]
    answered = lessons.paragraph("a_train", unit, unit.questions[0], 400, chance)
    batch = lessons.collate([answered, replace(answered, spans=())])
    config = BertConfig(
        vocab_size=700, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    torch.manual_seed(0)
    model, larger = (BertForQuestionAnswering(config).eval() for _ in range(2))
    alone = taught = 0.0
    with torch.no_grad():
        outs = [
            one(input_ids=batch.ids, attention_mask=batch.mask, token_type_ids=batch.types) for one in (model, larger)
        ]
        for side, name in enumerate(("start_logits", "end_logits")):
            own, said = (getattr(out, name).masked_fill(batch.outside, -1e4).log_softmax(1) for out in outs)
            for i in range(2):
                hard = -own[i][batch.right[side, i]].item()
                alone += hard / 4
                taught += (0.7 * hard - 0.3 * (said[i].exp() * own[i]).sum().item()) / 4
        assert practice_loss(model, batch).item() == pytest.approx(alone, rel=1e-5)
        assert practice_loss(model, batch, teacher=Teacher(larger, 0.3)).item() == pytest.approx(taught, rel=1e-5)


def test_each_of_several_answers_is_learned_where_they_are_apart() -> None:
    logs = torch.randn(3, 8, dtype=torch.float64).log_softmax(1)
    right = torch.zeros(3, 8, dtype=torch.bool)
    right[0, [1, 5]] = right[1, [1, 5]] = right[2, 0] = True
    found = places_loss(logs, right, torch.tensor([True, False, True]))
    assert found[0].item() == pytest.approx(-(logs[0, 1] + logs[0, 5]).item() / 2)
    assert found[1].item() == pytest.approx(-torch.logaddexp(logs[1, 1], logs[1, 5]).item())
    assert found[2].item() == pytest.approx(-logs[2, 0].item())
    assert all_apart([(5, 6), (1, 3)]) and not all_apart([(1, 5), (5, 6)]) and not all_apart([(1, 2)])


@pytest.mark.parametrize("length", [60, 2000])
def test_a_later_view_lacks_tokens_before_the_answer_only(length: int) -> None:
    torch.manual_seed(0)
    lessons, chance = made(length), random.Random(0)
    some = [lessons.lesson(chance) for _ in range(100)]
    ids, mask, types, outside, right, _ = lessons.collate(some).tensors(torch.device("cpu"))
    later, whole = later_view(torch.stack([ids, mask.long(), types, outside.long()]), right)
    missing = [len(row[row > 0]) - len(new[new > 0]) for row, new in zip(ids, later[0], strict=True)]
    assert min(missing) == 0 and 10 < max(missing) <= practice.LATER
    for i, lesson in enumerate(some):
        cut = missing[i]
        row = np.concatenate([FRAME.before, lesson.question, FRAME.between, lesson.passage[cut:], FRAME.after])
        real = later[1, i].bool()
        assert later[0, i][real].tolist() == row.tolist() and not later[0, i][~real].any()
        assert torch.equal(later[0, i][real], ids[i][whole[i]][real])
        assert later[3, i][~real].all() and not later[3, i, 0] and later[3, i, 1:5].all()
        assert (later[3, i] == 0).sum() == 1 + len(lesson.passage) - cut
        assert all(a >= cut for a, _ in lesson.spans)


def test_who_says_the_same_of_a_later_view_agrees() -> None:
    torch.manual_seed(0)
    scores = torch.randn(1, 6)
    outside = torch.tensor([[0, 1, 0, 0, 0, 1]])
    whole = torch.tensor([[0, 1, 3, 4, 5, 5]])  # without the first token of the passage
    logs = scores.masked_fill(torch.tensor([[0, 1, 0, 0, 0, 0]]).bool(), -1e4).log_softmax(1)
    same = scores.gather(1, whole).masked_fill(outside > 0, -1e4).log_softmax(1)
    assert agreement_loss(logs, same, whole, outside).abs().max() < 1e-6
    other = torch.randn(1, 6).masked_fill(outside > 0, -1e4).log_softmax(1)
    p, q = (one.exp().double() for one in (same, other))
    mean = (p + q) / 2
    expected = sum((one * (one / mean).log()).nansum() for one in (p, q)) / 2
    assert agreement_loss(logs, other, whole, outside).item() == pytest.approx(expected.item(), rel=1e-4)


def test_agreeing_is_part_of_the_loss_if_it_is_asked_for() -> None:
    torch.manual_seed(0)
    lessons, chance = made(60), random.Random(0)
    batch = lessons.collate([lessons.lesson(chance) for _ in range(8)])
    config = BertConfig(
        vocab_size=700, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.5,
    )  # fmt: skip
    model = BertForQuestionAnswering(config)
    plain = practice_loss(model, batch)
    torch.manual_seed(1)
    found = [practice_loss(model, batch, consistent=weight) for weight in (0.0, 1.0)]
    torch.manual_seed(1)
    double = practice_loss(model, batch, consistent=2.0)
    assert found[0] == plain and found[1] > plain
    torch.testing.assert_close(double - plain, 2 * (found[1] - plain))
