"""The loss that teaches which segments to open: by hand, through a model, and the same when it is compiled."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import vcc
from tests.hosts.models import build, ragged
from tests.hosts.test_new_options import compiled
from vcc.core.cut import Cut
from vcc.core.tree import build_tree
from vcc.data.collate import Collator
from vcc.errors import UsageError
from vcc.testing import random_rows
from vcc.train.objectives import Answering
from vcc.train.opening import answer_opening_loss, opening_loss, openings_of

SETTINGS = vcc.VccConfig(scales=(8, 2, 1), budget=(3, 4), window=12, window_layers=1, explore=0.0, dense_below=0)


def test_by_hand() -> None:
    """Two nodes of four tokens, and the second one opened into two of two tokens."""
    tree = build_tree(random_rows(1, 8), (4, 2, 1))
    first, second = torch.tensor([[0.2, 0.6]]), torch.tensor([[0.1, 0.5]])
    cut = Cut((), (), (torch.tensor([[1]]), torch.tensor([[2]])), scores=(first, second))
    gold = torch.zeros(1, 8, dtype=torch.bool)
    gold[0, 7] = True  # in the second node, and in its second child
    expected = (torch.tensor(0.8 / 0.6).log() + torch.tensor(0.6 / 0.5).log()) / 2
    assert float(opening_loss([cut], tree, gold)) == pytest.approx(float(expected), abs=1e-6)
    assert float(opening_loss([cut], tree, torch.zeros_like(gold))) == 0.0


def model_and_batch() -> tuple[Any, dict[str, Any]]:
    torch.manual_seed(0)
    wrapped = vcc.wrap(build("bert", "AutoModelForQuestionAnswering"), SETTINGS)
    batch = ragged()
    spans = torch.tensor([[[15, 17], [20, 20]], [[30, 33], [-100, -100]], [[-100, -100], [-100, -100]]])
    given = batch.arguments("bert", "AutoModelForQuestionAnswering")
    return wrapped, {**given, "spans": spans}


def test_a_models_answers_are_found_among_its_segments() -> None:
    """Answer tokens are numbered in the input, segments in the context, without VIPs and padding."""
    wrapped, batch = model_and_batch()
    with openings_of(wrapped) as seen:
        wrapped(**{name: value for name, value in batch.items() if name != "spans"})
    assert len(seen.cuts) == 2
    gold = torch.zeros(3, seen.tree.counts[-1].shape[1], dtype=torch.bool)
    gold[0, [8, 9, 10, 13]] = True  # 7 VIPs before 15
    gold[1, [19, 20, 21, 22]] = True  # 9 of padding and 2 VIPs before 30
    expected = opening_loss(seen.cuts, seen.tree, gold)
    assert float(answer_opening_loss(seen, batch["spans"])) == float(expected) > 0


@pytest.mark.slow
def test_it_teaches_queries_and_keys_and_a_compiled_model_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    losses, gradients = [], []
    for compiling in (False, True):
        wrapped, batch = model_and_batch()
        model = compiled(wrapped, monkeypatch) if compiling else wrapped
        answering = Answering("span", Collator("span", 0), "vip_mask", opening=0.5)
        loss = answering.loss(model, batch)
        loss.backward()
        losses.append(float(loss))
        gradients.append(wrapped.bert.encoder.layer[2].attention.self.query.weight.grad)
        plain = replace(answering, opening=0.0).loss(model, batch)
        assert float(plain) < float(loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-9)


def test_learning_it_raises_the_score_of_the_answers() -> None:
    wrapped, batch = model_and_batch()
    given = {name: value for name, value in batch.items() if name != "spans"}
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.3)
    found = []
    for _ in range(4):
        with openings_of(wrapped) as seen:
            wrapped(**given)
        loss = answer_opening_loss(seen, batch["spans"])
        found.append(float(loss))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert found == sorted(found, reverse=True)


def test_what_cannot_be_taught_is_rejected() -> None:
    wrapped, _ = model_and_batch()

    class Tokenizer:
        pad_token_id, model_input_names = 0, ["token_type_ids"]

    with pytest.raises(UsageError, match="--teach-opening is -1: it must be at least 0"):
        Answering.of(wrapped, Tokenizer(), "span", 64, opening=-1)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the head is choice"):
        Answering.of(wrapped, Tokenizer(), "choice", 64, opening=0.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="dense_below must be 0, it is none: VCC is off"):
        Answering.of(vcc.unwrap(wrapped), Tokenizer(), "span", 64, opening=0.5)  # type: ignore[arg-type]
