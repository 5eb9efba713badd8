"""The head for masked words runs on masked tokens only: the loss and the gradients are those of running it on all."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import vcc
from tests.hosts.models import FAMILIES, MAKERS, REAL, build, heads_of
from vcc.data.pretrain import Masked
from vcc.train.objectives import Filling, head_on

HEAD = "AutoModelForMaskedLM"
ENCODERS = [f for f in FAMILIES if HEAD in heads_of(f) and "AutoModelForSeq2SeqLM" not in heads_of(f)]


def batch_of(family: str, vips: str | None) -> dict[str, Tensor]:
    """Three sequences of different lengths, of which 4, 1 and no tokens are hidden."""
    generator, items = torch.Generator().manual_seed(0), []
    for length, hidden in ((45, [3, 9, 10, 44]), (30, [0]), (38, [])):
        ids = torch.randint(8, 119, (length,), generator=generator).numpy()
        labels, mask = torch.full((length,), -100).numpy(), torch.zeros(length, dtype=torch.long).numpy()
        labels[hidden], mask[hidden] = ids[hidden], 1
        ids[hidden] = 119
        items.append(Masked(ids, mask, labels, in_place=True))
    return Filling(False, MAKERS[family][1]["pad_token_id"], vips).collate(items)


def on_all_tokens(model: Any, batch: dict[str, Tensor]) -> Tensor:
    given = {name: value for name, value in batch.items() if name not in ("labels", "hidden_places")}
    logits = model(**given).logits
    assert logits.shape[:2] == batch["labels"].shape
    return cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100, reduction="sum")


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("family", ENCODERS)
def test_loss_and_gradients_are_those_of_the_head_on_all_tokens(family: str, wrapped: bool) -> None:
    batch, found = batch_of(family, "vip_mask" if wrapped else None), []
    for loss in (on_all_tokens, Filling(False, 0, None).loss):
        plain = build(family, HEAD)
        model = vcc.wrap(plain, REAL) if wrapped else plain
        value = loss(model, batch)
        value.backward()
        found.append((value.detach(), {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}))
    (expected, gradients), (actual, ours) = found
    assert actual.item() == pytest.approx(expected.item(), rel=1e-6)  # the loss is computed in float32
    assert ours.keys() == gradients.keys()
    for name, gradient in gradients.items():
        largest = max(float(gradient.abs().max()), 1e-6)
        assert float((ours[name] - gradient).abs().max()) < 1e-4 * largest, name


def test_the_head_computes_logits_of_the_hidden_tokens_only() -> None:
    model, batch = build("bert", HEAD), batch_of("bert", None)
    given = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        every = model(**given).logits
        with head_on(model, batch["hidden_places"]):
            some = model(**given).logits
        assert some.shape == (1, 5, every.shape[2])
        assert float((some[0] - every[batch["labels"] != -100]).abs().max()) < 1e-12
        assert torch.equal(model(**given).logits, every), "as before"
