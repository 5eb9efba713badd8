"""There is one way to ask: what training computes is what users get and what is measured.

The training side runs with gradients on a batch of pages of different lengths; its spans are found here by trying all.
The product's side reads texts one by one and asks them as `vcc ask` does.
"""

from dataclasses import replace

import pytest
from torch import Tensor

from shipped_model.data import Page, TokenQuestion
from shipped_model.ways import ReadByVcc, ReadByWindows
from tests.documents import small_model
from vcc.data.answers import ScoredSpan, without_overlaps
from vcc.data.features import tokenize_text
from vcc.documents.asker import Asker
from vcc.encode import Step
from vcc.qa.second_look import best_nodes, every_passage, passages_to_reread, with_a_chance
from vcc.qa.settings import QaSettings
from vcc.qa.windows import ChosenPassage, WindowReader, room
from vcc.qa.words import best_matches

pytestmark = pytest.mark.usefixtures("exact_indexes")

COMPRESSED = replace(small_model.SETTINGS, dense_below=17)  # windows of 16 tokens are read by the untouched model
LONG = "w1 w2 " * 5  # leaves 3 tokens of a window of 16: too little for a second look
QUESTIONS = ["w1 w2 ?", "w3 w4 w5 w6 ?", "w9", LONG]
WORDS = (2, 9, 25, 60)  # of a page of a document; each has two
SAME = {"abs": 1e-4, "rel": 1e-4}


def sides(framed: bool, looks: int) -> tuple[Asker, ReadByVcc]:
    asker = small_model.asker(settings=COMPRESSED)
    small_model.set_qa(asker.model, framed_windows=framed, second_looks=looks)
    return asker, ReadByVcc(asker.qa)


def pages(asker: Asker) -> list[Page]:
    asked = tuple(TokenQuestion(asker.qa.ids_of(question), ()) for question in QUESTIONS)
    return [Page(tokenize_text(small_model.document(n, n).text, asker.tokenizer).ids, asked) for n in WORDS]


def spans_of(logits: Tensor, first: int, n: int, most: int) -> list[ScoredSpan]:
    """By trying all pairs of logits (m, 2): place 0 is that of no answer, those from `first` on those of n tokens."""
    logits = logits.detach().double()
    start, end = logits[first : first + n].unbind(1)
    none = float(logits[0].sum())
    every = [
        ScoredSpan(a, b, float(start[a] + end[b]) - none)
        for a in range(n)
        for b in range(a, min(n, a + QaSettings().longest_answer))
    ]
    return without_overlaps(every, most)


def moved(spans: list[ScoredSpan], by: int) -> list[ScoredSpan]:
    return [ScoredSpan(one.first + by, one.last + by, one.score) for one in spans]


def judged_together(passages: list[tuple[int, int, list[ScoredSpan]]], most: int) -> list[ScoredSpan]:
    """The best spans of passages (start, end, spans), each place judged by every passage that holds it."""
    made = []
    for *_, spans in passages:
        for one in spans:
            said = []
            for start, end, others in passages:
                if start <= one.first and one.last < end:
                    near = [two.score for two in others if two.first <= one.last and one.first <= two.last]
                    said.append(min(one.score, max(-10.0, max(near, default=min(two.score for two in others)))))
            made.append(ScoredSpan(one.first, one.last, (one.score + sum(said) / len(said)) / 2))
    return without_overlaps(made, most)


def check_same(found: object, expected: list[ScoredSpan]) -> None:
    assert [(one.first, one.last) for one in found] == [(one.first, one.last) for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], **SAME)


@pytest.mark.parametrize("framed", [False, True])
def test_the_forward_of_training_gives_the_spans_and_leads_of_the_product(framed: bool) -> None:
    asker, way = sides(framed, looks=0)
    made = pages(asker)
    logits, _ = way.forward(made)
    assert logits.requires_grad
    rows = iter(logits)
    for n, page in zip(WORDS, made, strict=True):
        index = asker.index(small_model.document(n, n))
        for found in asker.find(index, QUESTIONS).found:
            check_same(found, spans_of(next(rows), 1, len(page.ids), QaSettings().candidates))


@pytest.mark.parametrize("framed", [False, True])
def test_what_is_trained_on_windows_is_the_products_second_look(framed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asker, way = sides(framed, looks=3)
    windows, most, looked = ReadByWindows(way.qa.windows), QaSettings().candidates, []
    look = WindowReader.look_at_each

    def seen(self: WindowReader, ids: object, questions: object, chosen: list[ChosenPassage], *rest: object) -> object:
        looked.extend(chosen)
        return look(self, ids, questions, chosen, *rest)

    monkeypatch.setattr(WindowReader, "look_at_each", seen)
    monkeypatch.setattr("vcc.qa.model.SHORT", 0)  # short texts have windows only
    for n, page in zip(WORDS, pages(asker), strict=True):
        looked.clear()
        steps: list[Step] = []
        logits, tree = way.forward([page], watch=steps.append)
        rooms = [room(q.ids, way.qa.frame, COMPRESSED.window) for q in page.questions]
        rooms = [size if size >= COMPRESSED.window // 4 else 0 for size in rooms]
        assert rooms[-1] == 0 and min(rooms[:-1]) > 0
        spans = [spans_of(row, 1, len(page.ids), most) for row in logits]
        nodes = best_nodes(steps[-1].cut, tree, way.qa.places(len(page.ids)), QaSettings().nodes)
        matches = best_matches(page.ids, [q.ids for q in page.questions], QaSettings().matches)
        chosen = [
            ChosenPassage(i, start, rooms[i])
            for i, one in enumerate(zip(spans, nodes, matches, strict=True))
            for start in passages_to_reread(with_a_chance(*one), rooms[i], len(page.ids), looks=3)
        ]
        index = asker.index(small_model.document(n, n))
        for i, found in enumerate(asker.find(index, QUESTIONS).found):
            passages = []
            for passage in [one for one in chosen if one.question == i]:
                read = page.ids[passage.start : passage.start + passage.size]
                window, (first,) = windows.forward([(page.questions[i].ids, read)])
                own = moved(spans_of(window[0], first, len(read), most), passage.start)
                passages.append((passage.start, passage.start + passage.size, own))
            check_same(found, judged_together(passages, most) if rooms[i] else without_overlaps(spans[i], most))
        assert sorted(looked) == sorted(chosen) and {one.question for one in looked} == {0, 1, 2}


@pytest.mark.parametrize("framed", [False, True])
def test_a_text_that_fits_one_window_is_read_in_one_window(framed: bool) -> None:
    """The oracle is the untouched model on [CLS] question [SEP] text [SEP]."""
    asker, way = sides(framed, looks=3)
    windows, most = ReadByWindows(way.qa.windows), QaSettings().candidates
    passes: list[int] = []
    asker.model.bert.embeddings.register_forward_hook(lambda module, given, out: passes.append(len(out)))
    short = small_model.document(2, 2)
    for asked in (QUESTIONS[:1], QUESTIONS[:3]):
        passes.clear()
        index = asker.index(short)
        found = asker.find(index, asked)
        assert passes == [len(asked)], "one forward pass, with all questions as one batch"
        assert found.rows == () and found.passages == len(asked)
        for question, spans in zip(asked, found.found, strict=True):
            ids = asker.qa.ids_of(question)
            logits, (first,) = windows.forward([(ids, index.ids)])
            check_same(spans, spans_of(logits[0], first, index.tokens, most))


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize(("words", "thorough"), [(15, False), (60, True)])
def test_every_window_is_read_of_a_short_text_and_of_any_that_is_read_thoroughly(
    framed: bool, words: int, thorough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcc.qa.model.BATCHES", 1)  # more than one report of progress
    asker, way = sides(framed, looks=3)
    windows, most = ReadByWindows(way.qa.windows), QaSettings().candidates
    index = asker.index(small_model.document(words, words))
    size = room(asker.qa.ids_of(QUESTIONS[0]), way.qa.frame, COMPRESSED.window)
    assert size < index.tokens and thorough == (index.tokens > 3 * COMPRESSED.window)
    starts = every_passage(index.tokens, size)
    passages = []
    for start in starts:
        logits, (first,) = windows.forward([(asker.qa.ids_of(QUESTIONS[0]), index.ids[start : start + size])])
        passages.append((start, start + size, moved(spans_of(logits[0], first, size, most), start)))
    expected = judged_together(passages, most)
    for asked in (QUESTIONS[:1], QUESTIONS, QUESTIONS[::-1]):  # the long one leaves no room: it needs the tree
        reports: list[tuple[int, int]] = []
        found = asker.find(index, asked, progress=lambda *told, to=reports: to.append(told), thorough=thorough)
        check_same(found.found[asked.index(QUESTIONS[0])], expected)
        assert bool(found.rows) == (LONG in asked)
        assert reports[-1] == (len(asked),) * 2 and (not thorough or len(reports) >= len(asked))


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize("looks", [0, 3])
def test_what_is_scored_and_timed_is_what_users_are_shown(framed: bool, looks: int) -> None:
    asker, way = sides(framed, looks)
    for n, page in zip(WORDS, pages(asker), strict=True):
        document = small_model.document(n, n)
        index = asker.index(document)
        replies, _ = asker.replies_to(document, index, QUESTIONS, top=1)
        measured = way.find(page)
        for found, shown, reply in zip(measured, asker.find(index, QUESTIONS).found, replies, strict=True):
            check_same(found, shown)
            best, [answer] = found[0], reply.answers
            chance = QaSettings().calibration.probabilities([one.score for one in found])[0]
            assert answer.start == index.offsets[best.first, 0] and answer.end == index.offsets[best.last, 1]
            assert answer.score == pytest.approx(chance, **SAME)
