"""The training script asks as the product does, and its pages hold the answers where they say."""

import math
import random
import unittest.mock
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForQuestionAnswering

import vcc
from shipped_model.data import (
    ASKED,
    REWORDED,
    TWISTED,
    Haystack,
    Mixture,
    Page,
    TokenQuestion,
    TokenSets,
    Unit,
    hide,
    load,
    save,
)
from shipped_model.practice import Teacher
from shipped_model.ways import ReadByVcc, ReadByWindows, loss_at
from tests.documents import small_model
from vcc.data.answers import without_overlaps
from vcc.data.features import Frame
from vcc.qa.model import QaModel
from vcc.qa.windows import WindowReader, batch

SETTINGS = vcc.VccConfig(
    scales=(32, 8, 1), budget=(3, 4), window=24, window_layers=1, vip_window="own", explore=0.0, dense_below=25
)
CLS, SEP = 2, 3  # of the small tokenizer
QUESTIONS = (TokenQuestion(np.array([300, 301]), ((5, 7),)), TokenQuestion(np.array([302, 303, 304, 305]), ()))


def model(settings: vcc.VccConfig | None = SETTINGS) -> BertForQuestionAnswering:
    torch.manual_seed(0)
    made = BertForQuestionAnswering(
        BertConfig(
            vocab_size=2000,
            hidden_size=16,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=512,
            initializer_range=0.3,
            attention_probs_dropout_prob=0.0,
        )
    ).eval()
    return vcc.wrap(made, settings) if settings else made


def by_vcc(looks: int = 0) -> ReadByVcc:
    made = model()
    small_model.set_qa(made, framed_windows=True, second_looks=looks)
    return ReadByVcc(QaModel(made, small_model.tokenizer()))


def by_windows(size: int, stride: int) -> ReadByWindows:
    frame = Frame.of(small_model.tokenizer())
    return ReadByWindows(WindowReader(model(None), frame, size, 256), stride=stride)


def page(n: int, seed: int = 0) -> Page:
    return Page(np.random.default_rng(seed).integers(200, 1900, n), QUESTIONS)


def test_pages_of_a_batch_are_asked_as_each_alone_by_one_forward_pass() -> None:
    way, pages = by_vcc(), [page(100), page(77, seed=1)]
    with torch.no_grad():
        asked = [q.ids for q in QUESTIONS] * 2
        logits, _ = way.forward(pages)
        for i, (question, owned) in enumerate(zip(asked, [pages[0]] * 2 + [pages[1]] * 2, strict=True)):
            read, places = [], []
            for start in range(0, len(owned.ids), 22):
                piece = owned.ids[start : start + 22].tolist()
                places += range(len(read) + 1, len(read) + 1 + len(piece))
                read += [CLS, *piece, SEP]
            ids = torch.tensor([[CLS, *question, SEP, *read]])
            first = (torch.arange(ids.shape[1]) < len(question) + 2).long()[None]
            out = way.model(input_ids=ids, token_type_ids=1 - first, vip_mask=first)
            both = torch.stack([out.start_logits[0], out.end_logits[0]], 1)
            expected = torch.cat([both[:1], both[len(question) + 2 :][places]])
            torch.testing.assert_close(logits[i, : len(expected)], expected, atol=1e-5, rtol=1e-5)
            assert (logits[i, len(expected) :] < -1e8).all(), "beyond the end of a page nothing can be chosen"


def test_every_way_learns_from_pages_and_finds_spans_inside_them() -> None:
    pages = [page(100), page(60, seed=1)]
    for way in (by_vcc(), by_windows(size=64, stride=32), by_vcc(looks=12)):
        loss = next(way.losses(pages))
        loss.backward()
        assert loss.isfinite() and way.model.qa_outputs.weight.grad.abs().sum() > 0
        assert way.model.bert.encoder.layer[0].attention.self.query.weight.grad.abs().sum() > 0
        for found in way.find(pages[0]):
            kept = without_overlaps(found, 5)
            assert kept and all(0 <= one.first <= one.last < 100 for one in kept)
            pairs = [(one, other) for one in kept for other in kept if one is not other]
            assert all(one.last < other.first or one.first > other.last for one, other in pairs)


def test_the_loss_is_that_of_the_right_places_in_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions with one answer, with two, and without, on a page that fits into a window."""
    asked = (*QUESTIONS, TokenQuestion(np.array([306]), ((2, 2), (9, 12))))
    small = replace(page(30), questions=asked)
    monkeypatch.setattr("shipped_model.ways.BUDGETS", (SETTINGS.budget,))
    compressed, windows = by_vcc(), by_windows(size=64, stride=32)
    compressed.choosing = 0.0
    for way, rows in (
        (compressed, list(compressed.forward([small])[0])),
        (windows, [alone(windows.model, question, small) for question in asked]),
    ):
        terms = [
            row[:, side].logsumexp(0) - row[[1 + span[side] for span in question.spans] or [0], side].logsumexp(0)
            for question, row in zip(asked, rows, strict=True)
            for side in (0, 1)
        ]
        torch.testing.assert_close(next(way.losses([small])), torch.stack(terms).mean(), atol=1e-5, rtol=1e-5)


def alone(untouched: BertForQuestionAnswering, question: TokenQuestion, read: Page) -> torch.Tensor:
    """Logits (1 + n, 2) of [CLS] and of the page, from one window."""
    first = len(question.ids) + 2
    ids = torch.tensor([[CLS, *question.ids, SEP, *read.ids, SEP]])
    out = untouched(input_ids=ids, token_type_ids=(torch.arange(ids.shape[1])[None] >= first).long())
    both = torch.stack([out.start_logits[0], out.end_logits[0]], 1)
    return torch.cat([both[:1], both[first:-1]])


def test_choosing_is_taught_until_the_answers_node_has_all_of_the_score() -> None:
    way, steps = by_vcc(), []
    _, tree = way.forward([page(100)], watch=steps.append)
    step = steps[0]
    asked = (replace(QUESTIONS[0], spans=((4, 6),)), QUESTIONS[1])
    # Behind a [CLS], tokens 4 to 6 end node 0 of both scales; the second question, without an answer, teaches nothing.
    for share, loss in ((1.0, 0.0), (0.25, math.log(4))):
        scores = []
        for score in step.cut.scores:
            made = torch.full_like(score, (1 - share) / (score.shape[1] - 1))
            made[0, 0] = share
            scores.append(made)
        known = replace(
            step,
            cut=replace(
                step.cut, scores=tuple(scores), opened_nodes=(torch.arange(3).expand(2, 3), step.cut.opened_nodes[1])
            ),
        )
        assert way.choosing_loss(asked, tree, [known]).item() == pytest.approx(loss, abs=1e-5)


# ----------------------------------------------------------------------------------------------------------------- data


def units(number: int, owners: int, length: int, start: int) -> tuple[Unit, ...]:
    """Texts in which each token is a different number, with an answer whose tokens tell where it is from."""
    made = []
    for i in range(number):
        ids = np.arange(start + i * length, start + (i + 1) * length) % 60_000
        spans = ((3, 5),)
        made.append(
            Unit(
                ids,
                (
                    TokenQuestion(np.array([i]), spans),
                    TokenQuestion(np.array([i, i]), spans, REWORDED),
                    TokenQuestion(np.array([i, 9]), (), TWISTED),
                ),
                i % owners,
            )
        )
    return tuple(made)


@pytest.fixture(scope="module")
def prepared() -> TokenSets:
    contracts = tuple(Unit(u.ids, u.questions[:2], u.owner) for u in units(8, 8, 3000, 0))
    sets = {
        "cuad_train": contracts,
        "squad11_train": units(40, 4, 100, 30_000),
        "squad2_train": units(8, 2, 90, 40_000),
        "hotpot_train": units(3, 3, 200, 50_000),
        "musique_train": units(3, 3, 200, 52_000),
    }
    return TokenSets(sets, {"train": np.arange(20_000) % 997})


def test_prepared_data_survive_the_file(prepared: TokenSets, tmp_path: Path) -> None:
    save(prepared, tmp_path / "tokens.xz")
    back = load(tmp_path / "tokens.xz")
    for name, some in prepared.units.items():
        for old, new in zip(some, back.units[name], strict=True):
            assert (old.ids == new.ids).all() and old.owner == new.owner
            for q, r in zip(old.questions, new.questions, strict=True):
                assert (q.ids == r.ids).all() and (q.spans, q.kind) == (r.spans, r.kind)


def test_hidden_units_are_where_they_are_said_to_be(prepared: TokenSets) -> None:
    some, chance = prepared.units["squad11_train"][:3], random.Random(0)
    ids, starts = hide(some, Haystack(prepared.books["train"], prepared.units["squad11_train"]), 5000, chance)
    assert 5000 <= len(ids) <= 5200
    for unit, start in zip(some, starts, strict=True):
        assert (ids[start : start + len(unit.ids)] == unit.ids).all()


@pytest.mark.parametrize("progress", [0.0, 0.3, 1.0])
def test_batches_fit_and_their_answers_are_in_place(prepared: TokenSets, progress: float, tmp_path: Path) -> None:
    save(prepared, tmp_path / "tokens.xz")  # numbers the questions
    mixture = Mixture(load(tmp_path / "tokens.xz"), tokens=12_000, shortest=600, longest=9000, progress=progress)
    kinds = set()
    for _, pages in zip(range(40), mixture, strict=False):
        assert pages and max(len(page.ids) for page in pages) <= 1.1 * mixture.limit + 300
        for made in pages:
            assert made.questions
            for q in made.questions:
                kinds.add((q.kind, bool(q.spans)))
                for a, b in q.spans:  # an answer is tokens 3 to 5 of its text, three numbers in a row
                    assert made.ids[a + 1] == made.ids[a] + 1 and b == a + 2 and made.ids[a] % 10 == 3
    assert {(ASKED, True), (ASKED, False), (REWORDED, True), (TWISTED, False)} <= kinds


def test_an_unanswerable_question_is_asked_of_the_paragraph_it_is_about() -> None:
    way = by_windows(size=128, stride=64)
    ids = np.arange(3000) % 1900
    asked = replace(QUESTIONS[1], near=1500)
    seen: list[list[int]] = []
    for _ in range(5):
        with unittest.mock.patch(
            "shipped_model.ways.batch",
            side_effect=lambda pairs, frame: seen.extend(p[1] for p in pairs) or batch(pairs, frame),
        ):
            next(way.losses([Page(ids, (asked,))]))
    assert sum(1500 in window for window in seen) >= 5 and len(seen) == 10


def test_each_of_several_answers_counts_as_much() -> None:
    logits = torch.randn(3, 9, 2, dtype=torch.float64)
    places = [[(1, 2), (5, 6)], [(3, 4)], []]
    logs = logits.log_softmax(1)
    own = [
        -(logs[0, [1, 5], 0].mean() + logs[0, [2, 6], 1].mean()) / 2,
        -(logs[1, 3, 0] + logs[1, 4, 1]) / 2,
        -logs[2, 0].mean(),
    ]
    assert loss_at(logits, places, each=True).item() == pytest.approx(sum(own).item() / 3, rel=1e-5)
    assert loss_at(logits, places).item() < loss_at(logits, places, each=True).item()


def test_a_teacher_is_heard_where_windows_of_pages_are_learned() -> None:
    logits, said = (torch.randn(2, 9, 2, dtype=torch.float64) for _ in range(2))
    for one in (logits, said):
        one[:, 7:] = -torch.inf  # outside the passages
    places: list[list[tuple[int, int]]] = [[(3, 4)], []]
    own, theirs = logits[:, :7].log_softmax(1), said[:, :7].softmax(1)
    gentle = -(theirs * own).sum(1).mean()
    expected = 0.75 * loss_at(logits, places) + 0.25 * gentle
    assert loss_at(logits, places, False, Teacher(None, 0.25), said).item() == pytest.approx(expected.item(), rel=1e-5)
    way = by_windows(24, 8)
    random.seed(0)
    alone = next(way.losses([page(60)])).item()
    way.teacher = Teacher(way.model, 1.0)
    random.seed(0)
    assert next(way.losses([page(60)])).item() < alone, "it is its own teacher: only the entropy is left"


def test_windows_that_a_first_reading_points_at_are_learned_as_holding_no_answer() -> None:
    way = by_windows(24, 8)
    question = QUESTIONS[1]  # nothing answers it
    read = Page(np.arange(400, 1400, dtype=np.int32), (question,))
    pointers = np.zeros((1, 1000), np.float32)
    pointers[0, 600] = 9.0
    seen: list[int] = []
    forward = way.forward

    def watch(pairs: list[tuple[np.ndarray, np.ndarray]]) -> tuple[torch.Tensor, list[int]]:
        seen.extend(600 in passage - 400 for _, passage in pairs)
        return forward(pairs)

    with unittest.mock.patch.object(way, "forward", watch):
        random.seed(0)
        for _ in range(40):
            list(way.losses([read], pointers))
        pointed = sum(seen)
        seen.clear()
        for _ in range(40):
            list(way.losses([read]))
    assert pointed > 10 > 4 > sum(seen)
