"""Asking through an index is the model's own forward pass, cut into a part for the document and one for questions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import vcc
from tests.documents import small_model
from vcc.core.cut import Cut
from vcc.core.tree import build_tree
from vcc.data.answers import ScoredSpan
from vcc.documents.answer import Reply
from vcc.documents.asker import UNLIKELY, Asker, Index, token_scores
from vcc.documents.document import Document
from vcc.documents.facts import Facts
from vcc.documents.shipped import load_asker
from vcc.documents.text import Part, Text
from vcc.errors import DocumentError, ModelError, UsageError
from vcc.qa.calibration import Calibration
from vcc.qa.clauses import CLAUSES
from vcc.qa.model import READ_AT_ONCE
from vcc.testing import random_rows

pytestmark = pytest.mark.usefixtures("exact_indexes")

QUESTIONS = ["w1 w2 ?", "w3 w4 w5 w6 w7 w8 ?", "w9", "w10 w11 " * 12]


def logits_of(asker: Asker, index: Index, questions: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the document's tokens (Q, n, 2), and of no answer (Q,)."""
    asked = [asker.qa.ids_of(question) for question in questions]
    with torch.no_grad():
        logits = asker.qa.logits(index.tree, [index.tokens], asked)
    return logits[:, 1:], logits[:, 0].sum(1)


def joint_logits(asker: Asker, document: Text, question: str) -> tuple[torch.Tensor, torch.Tensor]:
    """[CLS] question [SEP] document [SEP] through the wrapped model's forward, as Hugging Face encodes the pair."""
    batch = asker.tokenizer(question, document.text, return_tensors="pt", return_token_type_ids=True, verbose=False)
    kinds = torch.tensor(batch.sequence_ids(0) == np.array(1))
    vips = torch.zeros_like(batch["input_ids"])
    vips[:, : int(kinds.nonzero()[0])] = 1
    with torch.no_grad():
        out = asker.model(**batch, vip_mask=vips)
    assert asker.model.vcc_report(), "the forward pass was dense"
    both = torch.stack([out.start_logits[0], out.end_logits[0]], 1)
    return both[kinds], both[0].sum()


@pytest.mark.parametrize("words", [3, 60, 230])
def test_asking_an_index_is_the_models_own_forward(words: int) -> None:
    asker, document = small_model.asker(), small_model.document(words)
    index = asker.index(document)
    for question in QUESTIONS:
        logits, none = logits_of(asker, index, [question])
        expected, expected_none = joint_logits(asker, document, question)
        torch.testing.assert_close(logits[0], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(none[0], expected_none, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("words", [3, 60, 230])
def test_framed_windows_are_read_between_special_tokens(words: int) -> None:
    """The same as one forward pass over [CLS] question [SEP] and then [CLS] 14 tokens [SEP], again and again."""
    asker, document = small_model.asker(), small_model.document(words)
    small_model.set_qa(asker.model, framed_windows=True)
    index = asker.index(document)
    cls, sep, room = 2, 3, small_model.SETTINGS.window - 2
    read, places = [], []
    for start in range(0, index.tokens, room):
        piece = index.ids[start : start + room].tolist()
        places += range(len(read) + 1, len(read) + 1 + len(piece))
        read += [cls, *piece, sep]
    for question in QUESTIONS:
        asked = [cls, *asker.tokenizer(question, add_special_tokens=False)["input_ids"], sep]
        ids = torch.tensor([asked + read])
        first = (torch.arange(ids.shape[1]) < len(asked)).long()[None]
        logits, none = logits_of(asker, index, [question])
        with torch.no_grad():
            out = asker.model(input_ids=ids, token_type_ids=asker.qa.frame.second_type * (1 - first), vip_mask=first)
        both = torch.stack([out.start_logits[0], out.end_logits[0]], 1)
        torch.testing.assert_close(logits[0], both[len(asked) :][places], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(none[0], both[0].sum(), atol=1e-5, rtol=1e-5)
    reading, _ = asker.see(document, index, "w1 ?")
    assert reading.openness.shape == (2, index.tokens)


def test_a_second_look_is_the_untouched_model_on_the_passage() -> None:
    """A document of one passage: what Hugging Face's model finds in [CLS] question [SEP] document [SEP]."""
    settings = replace(small_model.SETTINGS, window=64, dense_below=65)
    asker, document = small_model.asker(settings=settings), small_model.document(20)
    small_model.set_qa(asker.model, second_looks=2)
    untouched = vcc.unwrap(asker.model)
    index = asker.index(document)
    for question in ("w1 w2 ?", "w3 w4 w5", "w9"):
        batch = asker.tokenizer(question, document.text, return_tensors="pt", return_token_type_ids=True)
        inside = torch.tensor(batch.sequence_ids(0) == np.array(1))
        with torch.no_grad():
            out = untouched(**batch)
        start, end = out.start_logits[0], out.end_logits[0]
        total = (start[:, None] + end[None]).masked_fill(~(inside[:, None] & inside[None]).triu(), -torch.inf)
        first, last = divmod(int(total.argmax()), len(start))
        before = int(inside.nonzero()[0])
        asked = asker.find(index, [question], 1)
        best = asked.found[0][0]
        assert (best.first, best.last, asked.passages) == (first - before, last - before, 1)
        assert best.none == pytest.approx(float(start[0] + end[0]), abs=1e-4)
        assert best.score == pytest.approx(float(total.max() - start[0] - end[0]), abs=1e-4)


def test_a_question_that_leaves_no_room_keeps_what_was_found() -> None:
    asker, document = small_model.asker(), small_model.document()
    index, question = asker.index(document), "w1 w2 " * 8
    (first,), _ = asker.replies_to(document, index, [question])
    small_model.set_qa(asker.model, second_looks=1)
    (second,), _ = asker.replies_to(document, index, [question])
    assert spans((first,)) == spans((second,)) and first.answers


def test_the_questions_of_a_batch_do_not_touch_each_other() -> None:
    asker, document = small_model.asker(), small_model.document()
    index = asker.index(document)
    together, nones = logits_of(asker, index, QUESTIONS)
    for i, question in enumerate(QUESTIONS):
        alone, none = logits_of(asker, index, [question])
        torch.testing.assert_close(together[i], alone[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(nones[i], none[0], atol=1e-5, rtol=1e-5)


def test_asking_in_small_batches_gives_the_same_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    asker, document = small_model.asker(), small_model.document()
    index = asker.index(document)
    together, _ = asker.replies_to(document, index, QUESTIONS)
    monkeypatch.setattr("vcc.qa.model.ASKED_AT_ONCE", {"cpu": 1})
    assert spans(asker.replies_to(document, index, QUESTIONS)[0]) == spans(together)
    assert spans(asker.replies_to(document, index, QUESTIONS)[0]) == spans(together), "asking changed the index"


def spans(replies: tuple[Reply, ...]) -> list[tuple[str, list[tuple[int, int, float]]]]:
    return [(reply.question, [(a.start, a.end, round(a.score, 4)) for a in reply.answers]) for reply in replies]


def test_reading_in_steps_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asker, document = small_model.asker(), small_model.document()
    whole = asker.index(document).tree
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr("vcc.qa.long_tree.READ_AT_ONCE", {"cpu": 32})
    assert whole.length < READ_AT_ONCE["cpu"]
    index = asker.index(document, lambda done, total: seen.append((done, total)))
    parts = index.tree.differences
    for part, expected in zip((index.tree.means, *parts), (whole.means, *whole.differences), strict=True):
        torch.testing.assert_close(part, expected, atol=1e-5, rtol=1e-5)
    assert seen[0] == (0, index.tokens) and seen[-1] == (index.tokens, index.tokens) and len(seen) > 5
    assert seen == sorted(seen)


def test_every_token_is_read_and_the_facts_say_so() -> None:
    asker, document = small_model.asker(), small_model.document()
    index = asker.index(document)
    assert document.text[index.offsets[-1, 0] : index.offsets[-1, 1]] == document.text.split()[-1][-3:].strip()
    replies, facts = asker.replies_to(document, index, QUESTIONS[:2])
    assert facts.tokens == index.tokens == len(asker.tokenizer(document.text, add_special_tokens=False)["input_ids"])
    roots = -(-(index.tokens + 1) // 8)  # the [SEP] at the end is in a segment too
    vips = 2 + len(asker.tokenizer(QUESTIONS[1], add_special_tokens=False)["input_ids"])
    assert facts.rows == tuple((layer, vips + roots - 5 + 5 * 4 - 6 + 6 * 2) for layer in (1, 2))
    assert facts.shown()["tokens"].endswith("none cut") and facts.as_dict()["tokens_cut"] == 0
    assert facts.compression == pytest.approx(facts.tokens / facts.rows[0][1])
    assert all(reply.answers for reply in replies)


def test_answers_are_spans_of_the_text_with_probabilities() -> None:
    asker, document = small_model.asker(), small_model.document()
    replies, _ = asker.replies_to(document, asker.index(document), QUESTIONS, top=5)
    for reply in replies:
        assert len(reply.answers) == 5
        scores = [answer.score for answer in reply.answers]
        assert scores == sorted(scores, reverse=True) and 0 <= scores[-1] <= scores[0] <= 1
        for answer in reply.answers:
            assert document.text[answer.start : answer.end] == answer.text == answer.text.strip() != ""
            assert answer.place in ("page 1", "page 2")


def test_an_answer_must_be_as_likely_as_the_threshold_says() -> None:
    asker, document = small_model.asker(), small_model.document()
    small_model.set_qa(asker.model, calibration=Calibration(0.1))
    index = asker.index(document)
    logits, none = logits_of(asker, index, ["w1"])
    pairs = logits[0, :, :1] + logits[0, :, 1]
    tokens = torch.arange(len(pairs))
    allowed = (tokens[None] >= tokens[:, None]) & (tokens[None] < tokens[:, None] + 256)
    chance = float(torch.sigmoid(0.1 * (pairs[allowed].max() - none[0])))
    for needed, found in ((chance + 0.001, False), (chance - 0.001, True)):
        [given], _ = asker.replies_to(document, index, ["w1"], threshold=needed)
        small_model.set_qa(asker.model, threshold=needed)
        [kept], _ = asker.replies_to(document, index, ["w1"])
        assert given == kept and bool(given.answers) is found
        assert (given.answers[0] if found else given.nearest).score == pytest.approx(chance, abs=1e-5)
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(UsageError, match="threshold"):
            asker.replies_to(document, index, ["w1"], threshold=wrong)


def test_a_doubtful_answer_is_told_as_such_and_an_unlikely_one_not_at_all() -> None:
    asker, document = small_model.asker(), small_model.document()
    small_model.set_qa(asker.model, threshold=0.6, doubt=0.3)
    index = asker.index(document)
    spans = {lead: [ScoredSpan(3, 5, lead), ScoredSpan(9, 9, lead - 1)] for lead in (2.0, 0.0, -1.0)}
    sure, doubtful, none = (asker.reply(document, index, "w1", some, 3) for some in spans.values())
    assert [answer.score for answer in sure.answers] == [pytest.approx(0.881, abs=1e-3), pytest.approx(0.731, abs=1e-3)]
    assert sure.nearest is None
    assert doubtful.answers == () and doubtful.nearest.score == 0.5
    assert none.answers == () and none.nearest is None
    assert asker.reply(document, index, "w1", spans[-1.0], 3, 0.0).answers[0].start == sure.answers[0].start


def test_clauses_have_a_calibration_of_their_own() -> None:
    asker, document = small_model.asker(), small_model.document()
    small_model.set_qa(asker.model, clause_calibration=Calibration(0.5, 0.0, 1.0))
    index, clause = asker.index(document), CLAUSES[3].question
    spans = [ScoredSpan(3, 5, 2.0)]
    asked = ("w1", clause, f"  {clause}")  # the same to the model
    scores = [asker.reply(document, index, one, spans, 1).answers[0].score for one in asked]
    own = 0.5 * 2.0 + 1.0
    assert scores == [pytest.approx(1 / (1 + math.exp(-z))) for z in (2.0, own, own)]


def test_seeing_tells_what_the_forward_opened() -> None:
    asker, document = small_model.asker(), small_model.document()
    index = asker.index(document)
    reading, facts = asker.see(document, index, QUESTIONS[0])
    joint_logits(asker, document, QUESTIONS[0])
    for report, openness in zip(asker.model.vcc_report()[1:], reading.openness, strict=True):
        roots, middle = (set(nodes[0].tolist()) for nodes in report.opened)
        for token, value in enumerate(openness.tolist()):
            assert value == (1.0 if token // 2 in middle else 0.5 if token // 8 in roots else 0.0)
    assert reading.layers == ("layer 2", "layer 3")
    assert reading.answers == asker.replies_to(document, index, QUESTIONS[:1])[0][0].answers
    assert reading.scores.min() >= 0 and facts.rows == asker.replies_to(document, index, QUESTIONS[:1])[1].rows
    assert (reading.scores.sum(1) <= 1 + 1e-5).all() and (reading.scores.sum(1) > 0.9).all()


def test_scores_are_shared_out_among_the_children() -> None:
    tree = build_tree(random_rows(1, 8), (4, 2, 1))
    opened = (torch.tensor([[1]]), torch.tensor([[2]]))
    cut = Cut(opened, (), opened, (), (torch.tensor([[0.25, 0.75]]), torch.tensor([[0.4, 0.6]])))
    assert token_scores(tree, cut)[0].tolist() == pytest.approx([0.0625] * 4 + [0.15] * 2 + [0.225] * 2)


def test_a_document_keeps_its_index_for_later_questions(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, document = small_model.saved(tmp_path), Document(small_model.document())
    answers = document.ask(QUESTIONS[0], model=folder)
    monkeypatch.setattr(Asker, "index", lambda *_: pytest.fail("the document was read again"))
    replies = document.ask_all(QUESTIONS[:2], model=folder)
    assert answers and spans(replies[:1]) == spans((Reply(QUESTIONS[0], answers),))


def test_models_that_cannot_be_asked_say_why(tmp_path: Any) -> None:
    tokenizer, inline = small_model.tokenizer(), replace(small_model.SETTINGS, vip_window="inline")
    for model, word in (
        (small_model.model(settings=inline), "inline"),
        (small_model.model().hf_class(small_model.model().config), "not wrapped"),
        (small_model.model().bert, "qa_outputs"),
    ):
        with pytest.raises(ModelError, match=word):
            Asker(model, tokenizer)
    with pytest.raises(ModelError, match="no config.json"):
        load_asker(str(tmp_path))
    folder = small_model.saved(tmp_path)
    small_model.model().bert.save_pretrained(tmp_path)  # loads as a model with a head of random numbers
    with pytest.raises(ModelError, match="qa_outputs"):
        load_asker(folder)


def test_weights_in_16_bits_are_computed_with_in_32(tmp_path: Any, capfd: pytest.CaptureFixture[str]) -> None:
    folder = small_model.saved(tmp_path)
    small_model.model().half().save_pretrained(tmp_path)
    capfd.readouterr()
    loaded = load_asker(folder).model
    assert {part.dtype for part in loaded.parameters()} == {torch.float32}
    expected = small_model.model().qa_outputs.weight.half().float()
    assert torch.equal(loaded.qa_outputs.weight.cpu(), expected)
    assert capfd.readouterr() == ("", ""), "transformers speaks while it loads"


def test_unlikely_answers_are_left_out_but_never_the_best() -> None:
    asker, document = small_model.asker(), small_model.document()
    index = asker.index(document)
    for leads, found in (((1.0, 0.5, -4.0), 3), ((1.0, -4.0, -6.0), 2), ((-6.0, -7.0, -8.0), 1)):
        spans = [ScoredSpan(5 * i, 5 * i, lead) for i, lead in enumerate(leads)]
        answers = asker.reply(document, index, "w1", spans, 20).answers
        assert len(answers) == found and all(answer.score >= UNLIKELY for answer in answers[1:])


def test_texts_and_questions_without_words_are_refused() -> None:
    asker = small_model.asker()
    blank = Text(" \n", "blank", "blank.txt", (Part("", 0, 2),))
    with pytest.raises(DocumentError, match="blank.txt"):
        asker.index(blank)
    document = small_model.document(5)
    with pytest.raises(ValueError, match="has no words"):
        asker.replies_to(document, asker.index(document), ["  "])


def test_facts_name_every_layer_where_they_differ() -> None:
    facts = Facts(1000, 1, ((3, 100), (4, 50)), 0.0, 0.5)
    assert facts.shown()["rows"] == "100 in layer 4, 50 in layer 5" and facts.shown()["reading"] == "from the index"
