"""Statements are labelled by what their passage says of them."""

import random

import numpy as np
import pytest
import torch

from shipped_model import verdicts
from shipped_model.data import ABSENT, CONTRADICTED, SENTENCE_END, SUPPORTED, TokenQuestion, Unit
from shipped_model.verdicts import KINDS, StatementStream, accuracy, new_head, save_head, verdict_loss
from tests.shipped_model.test_practice import FRAME
from tests.shipped_model.test_ways import model
from vcc.qa.verdicts import load_head
from vcc.qa.windows import WindowReader


def contract(kind: int, owner: int) -> Unit:
    ids = np.full(3000, 500 + owner)
    ids[1500:1510] = 40 + owner
    spans = () if kind == ABSENT else ((1500, 1509),)
    return Unit(ids, (TokenQuestion(np.array([7, 8, owner]), spans, kind),), owner)


def test_a_window_decides_only_with_the_clause_in_it() -> None:
    units = {"verdicts_train": [contract(kind, i) for i, kind in enumerate(KINDS)]}
    stream, chance = StatementStream(units, FRAME), random.Random(0)
    seen = set()
    for _ in range(300):
        one = stream.judged(chance)
        inside = bool(((one.passage >= 40) & (one.passage < 50)).any())
        own = KINDS[int(one.statement[2])]
        assert KINDS[one.verdict] == (own if inside else ABSENT)
        seen.add((own, inside))
    assert (SUPPORTED, True) in seen and (CONTRADICTED, True) in seen and (SUPPORTED, False) in seen


def test_a_statement_is_supported_where_its_own_answer_stands() -> None:
    units = []
    for i in range(4):
        ids = np.arange(60) + 300 + 100 * i
        ids[[19, 39, 59]] = SENTENCE_END
        units.append(
            Unit(ids, (TokenQuestion(np.array([7]), ((25, 26),)), TokenQuestion(np.array([8]), ((45, 46),))), owner=0)
        )
    stream, chance = StatementStream({"squad11_train": units}, FRAME), random.Random(0)
    found = {kind: 0 for kind in KINDS}
    for _ in range(400):
        one = stream.judged(chance)
        found[KINDS[one.verdict]] += 1
        words = set(one.statement.tolist()) - {7, 8, SENTENCE_END}
        stands = words <= set(one.passage.tolist())
        if KINDS[one.verdict] == SUPPORTED:
            assert stands
        elif KINDS[one.verdict] == ABSENT:
            assert not stands
        else:
            assert one.statement[0] in (7, 8) or not any(
                np.array_equal(one.passage[a : a + len(one.statement)], one.statement) for a in range(60)
            )
    assert min(found.values()) > 50


def test_the_head_is_saved_and_learns(tmp_path) -> None:
    units = {"verdicts_train": [contract(kind, i) for i, kind in enumerate(KINDS)]}
    reader = model()
    head = new_head(reader)
    batch = next(iter(StatementStream(units, FRAME, tokens=4096)))
    assert batch.ids.shape == batch.mask.shape and len(batch.verdicts) == len(batch.ids)
    verdict_loss(reader, head, batch).backward()
    assert head.weight.grad is not None and reader.bert.embeddings.word_embeddings.weight.grad is not None
    save_head(head, tmp_path)
    again = load_head(tmp_path, reader)
    assert (
        again is not None
        and torch.equal(again.weight.half(), head.weight.half())
        and (tmp_path / verdicts.FILE).is_file()
    )


def test_accuracy_is_that_of_the_window_that_is_least_silent() -> None:
    units = [contract(kind, i) for i, kind in enumerate(KINDS)]
    reader = WindowReader(model(), FRAME, 512, 30)
    head = new_head(reader.model)
    for favoured in range(3):
        with torch.no_grad():
            head.bias.copy_(50 * torch.nn.functional.one_hot(torch.tensor(favoured), 3))
        assert accuracy(reader, head, units) == pytest.approx(100 / 3), "every statement gets the same verdict"
    assert accuracy(reader, head, units[favoured:]) == 100
