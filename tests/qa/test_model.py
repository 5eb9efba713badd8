"""Reading and asking on tokens: whatever is beside a document, and in however many pieces it is read."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.documents import small_model
from vcc.qa.calibration import Calibration
from vcc.qa.clauses import CLAUSES
from vcc.qa.model import QaModel
from vcc.qa.second_look import Looks, for_clauses, for_short_texts

RNG = np.random.default_rng(0)
DOCUMENTS = [RNG.integers(5, 60, n) for n in (90, 3, 33, 64)]
QUESTIONS = [RNG.integers(5, 60, n) for n in (2, 6, 1, 4)]


def qa_model(**settings: object) -> QaModel:
    asker = small_model.asker()
    small_model.set_qa(asker.model, **settings)
    return asker.qa


@pytest.mark.parametrize("framed", [False, True])
def test_documents_read_together_in_pieces_are_each_as_if_read_alone(
    framed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    qa, owner = qa_model(framed_windows=framed), torch.tensor([3, 0, 2, 1])
    whole = qa.read(DOCUMENTS)
    monkeypatch.setattr("vcc.qa.model.READ_AT_ONCE", {"cpu": 32})
    with torch.no_grad():
        together = qa.read(DOCUMENTS)
        torch.testing.assert_close(together.means, whole.means, atol=1e-5, rtol=1e-5)
        logits = qa.logits(together, [len(ids) for ids in DOCUMENTS], QUESTIONS, owner)
        for question, row, document in zip(QUESTIONS, logits, owner.tolist(), strict=True):
            n = len(DOCUMENTS[document])
            alone = qa.logits(qa.read([DOCUMENTS[document]]), [n], [question])[0]
            torch.testing.assert_close(row[: 1 + n], alone, atol=1e-5, rtol=1e-5)
            assert (row[1 + n :] == -torch.inf).all(), "beyond the end of a document nothing can be chosen"


def test_gradients_reach_the_windows_of_every_document() -> None:
    qa = qa_model()
    tree = qa.read(DOCUMENTS)
    tree.means.retain_grad()
    logits = qa.logits(tree, [len(ids) for ids in DOCUMENTS], QUESTIONS, torch.tensor([0, 1, 2, 3]))
    logits[logits.isfinite()].square().sum().backward()
    assert (tree.means.grad.abs().amax((1, 2)) > 0).all()


@pytest.mark.parametrize("looks", [0, 2])
def test_no_answer_starts_or_ends_where_a_token_covers_nothing(looks: int) -> None:
    settings = replace(small_model.SETTINGS, dense_below=17)
    asker = small_model.asker(settings=settings)
    small_model.set_qa(asker.model, second_looks=looks)
    document = DOCUMENTS[0]
    with torch.no_grad():
        tree = asker.qa.read([document])
    blank = np.zeros(len(document), bool)
    found = asker.qa.best_spans(tree, document, QUESTIONS).found
    for span in (span for some in found for span in some):
        blank[[span.first, span.last]] = True
    ends = {
        place
        for some in asker.qa.best_spans(tree, document, QUESTIONS, blank=blank).found
        for one in some
        for place in (one.first, one.last)
    }
    assert ends and not blank[list(ends)].any()


def test_clauses_that_a_model_knows_by_heart_are_looked_for_in_a_way_of_their_own() -> None:
    for own, looks in ((Calibration(), for_clauses(12)), (None, Looks(12))):
        qa = qa_model(second_looks=12, clause_calibration=own)
        short = 12 * qa.config.window
        assert qa.looks_for(qa.ids_of(CLAUSES[3].question), short + 1, top=2) == looks
        assert qa.looks_for(QUESTIONS[0], short + 1) == Looks(12)
        assert qa.looks_for(QUESTIONS[0], short) == for_short_texts(12)
    known = qa_model(second_looks=12, clause_calibration=Calibration())
    assert known.looks_for(known.ids_of(CLAUSES[3].question), 9999, top=1) == for_clauses(12, several=False)


def test_positions_of_a_question_end_where_those_of_the_document_begin() -> None:
    vips = qa_model().vips([np.array([5, 6]), np.array([7])])
    assert vips.positions[0].tolist() == [-4, -3, -2, -1] and vips.positions[1, :3].tolist() == [-3, -2, -1]
    assert vips.counts.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
