"""VIPs without thinking: each head's default, a prefix by `vip_length`, and errors that say what to pass."""

from typing import Any

import pytest
import torch
from torch import Tensor

import vcc
from tests.hosts.models import (
    EVERY_HEAD,
    EVERY_HOST,
    FAMILIES,
    LAST,
    MASK,
    READS_PADDING,
    REAL,
    SEQ2SEQ,
    Batch,
    build,
    difference,
    heads_of,
    ragged,
)
from vcc.hosts.families import find_family
from vcc.hosts.forward import vip_rules
from vcc.hosts.forward.vip_rules import first_tokens, vips_by_rule

ENCODERS = tuple(family for family in FAMILIES if family not in SEQ2SEQ)


def same(family: str, head: str, batch: Batch, vips: Tensor, **changes: Any) -> bool:
    """Whether a head without `vip_mask` reads as with these VIPs, and not as with others."""
    wrapped = vcc.wrap(build(family, head), REAL)
    given = Batch(batch.ids, batch.real, vips)
    with torch.no_grad():
        default = wrapped(**given.inputs(family, head), **changes)
        expected = wrapped(**given.arguments(family, head), **changes)
        other = wrapped(**Batch(batch.ids, batch.real, 1 - vips).arguments(family, head), **changes)
    assert difference(other, expected, batch.real) > 1e-6
    return difference(default, expected, batch.real) == 0


@pytest.mark.parametrize("family", [f for f in FAMILIES if "AutoModelForSequenceClassification" in heads_of(f)])
def test_classification_takes_the_first_token(family: str) -> None:
    batch = ragged()
    first = torch.zeros_like(batch.ids)
    first[0, 0], first[1, 9], first[2, 0] = 1, 1, 1  # the second is padded on the left
    rows = [0, 2] if family in READS_PADDING else [0, 1, 2]
    batch = Batch(batch.ids[rows], batch.real[rows], batch.vips[rows])
    assert same(family, "AutoModelForSequenceClassification", batch, first[rows])


@pytest.mark.parametrize("family", ENCODERS)
def test_masked_lm_takes_the_masked_tokens(family: str) -> None:
    batch = ragged()
    batch.ids[:, [13, 21, 30]] = MASK
    assert same(family, "AutoModelForMaskedLM", batch, (batch.ids == MASK).long())


@pytest.mark.parametrize("family", ENCODERS)
def test_masked_lm_with_labels_takes_the_labelled_tokens(family: str) -> None:
    """Some of them are not the mask token: a collator leaves a tenth as it is and swaps another."""
    batch = ragged()
    labels = torch.full_like(batch.ids, -100)
    labels[:, [13, 25, 30]] = 7
    assert same(family, "AutoModelForMaskedLM", batch, (labels != -100).long(), labels=labels)


QUESTIONS = ("AutoModelForQuestionAnswering", "AutoModelForMultipleChoice")


@pytest.mark.parametrize(("family", "head"), [(f, h) for f, h in EVERY_HEAD if h in QUESTIONS])
def test_questions_end_at_the_first_separator(family: str, head: str) -> None:
    batch = ragged()
    batch = Batch(batch.ids.masked_fill(batch.ids == LAST, 50), batch.real, torch.zeros_like(batch.ids))
    batch.ids[:, [15, 30]] = LAST
    question = (torch.arange(45) <= 15).long() * batch.real
    assert same(family, head, batch, question)


@pytest.mark.parametrize("family", EVERY_HOST)
def test_vip_length_counts_real_tokens_from_the_start(family: str) -> None:
    wrapped, batch = vcc.wrap(build(family), REAL), ragged()
    lengths = torch.tensor([4, 1, 6])
    prefix = torch.zeros_like(batch.ids)
    prefix[0, :4], prefix[1, 9:10], prefix[2, :6] = 1, 1, 1
    with torch.no_grad():
        expected = wrapped(**Batch(batch.ids, batch.real, prefix).arguments(family))
        actual = wrapped(**batch.inputs(family), vip_length=lengths)
        assert difference(actual, expected, batch.real) == 0
        everywhere = first_tokens(3, batch.real.bool()).long()
        expected = wrapped(**Batch(batch.ids, batch.real, everywhere).arguments(family))
        actual = wrapped(**batch.inputs(family), vip_length=3)
        assert difference(actual, expected, batch.real) == 0


def test_vip_length_for_multiple_choice_is_one_per_choice() -> None:
    head = "AutoModelForMultipleChoice"
    wrapped, batch = vcc.wrap(build("bert", head), REAL), ragged()
    with torch.no_grad():
        actual = wrapped(**batch.inputs("bert", head), vip_length=torch.tensor([[3, 3], [3, 3], [3, 3]]))
        expected = wrapped(**batch.inputs("bert", head), vip_length=3)
    assert torch.equal(actual.logits, expected.logits)


ANYWHERE = ("AutoModel", "AutoModelForTokenClassification", "AutoModelForSeq2SeqLM")


@pytest.mark.parametrize(("family", "head"), [(f, h) for f in FAMILIES for h in heads_of(f) if h in ANYWHERE])
def test_where_no_token_matters_more_the_first_and_last_are_vips(
    family: str, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vip_rules, "ENDS", 3)
    batch = ragged()
    ends = torch.zeros_like(batch.ids)
    ends[0, [0, 1, 2, 31, 32, 33]], ends[1, [9, 10, 11, 42, 43, 44]], ends[2, [0, 1, 2, 42, 43, 44]] = 1, 1, 1
    assert same(family, head, batch, ends)


def test_a_text_shorter_than_both_ends_is_all_vips() -> None:
    real = ragged().real.bool()
    config = build("bert").config
    assert torch.equal(vips_by_rule(None, None, real, config, find_family("bert")), real)


def test_a_rule_that_finds_nothing_says_so() -> None:
    batch = ragged()
    ids = batch.ids.masked_fill(batch.ids == LAST, 50)
    for head, problem in (
        ("AutoModelForMaskedLM", rf"no mask token \(id {MASK}\)"),
        ("AutoModelForQuestionAnswering", rf"no separator \(id {LAST}\)"),
    ):
        with pytest.raises(ValueError, match=problem + ".*vip_mask"):
            vcc.wrap(build("bert", head), REAL)(input_ids=ids, attention_mask=batch.real)


def test_rules_need_token_ids() -> None:
    """Embeddings do not show which token is masked or separates; the first token is the first either way."""
    batch = ragged()
    config = build("bert").config
    for rule in ("mask", "separator"):
        with pytest.raises(ValueError, match="vip_mask"):
            vips_by_rule(rule, None, batch.real.bool(), config, find_family("bert"))
    first = vips_by_rule("first", None, batch.real.bool(), config, find_family("bert"))
    assert first.nonzero().tolist() == [[0, 0], [1, 9], [2, 0]]


def test_padding_is_never_a_vip() -> None:
    wrapped, batch = vcc.wrap(build("roberta"), REAL), ragged()
    marked = batch.vips | (1 - batch.real)
    with torch.no_grad():
        expected = wrapped(**batch.arguments("roberta"))
        actual = wrapped(**batch.inputs("roberta"), vip_mask=marked)
    assert difference(actual.last_hidden_state, expected.last_hidden_state, batch.real) == 0


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float32])
def test_any_type_of_mask_will_do(kind: torch.dtype) -> None:
    wrapped, batch = vcc.wrap(build("bert"), REAL), ragged()
    with torch.no_grad():
        expected = wrapped(**batch.arguments("bert"))
        masks = {"attention_mask": batch.real.to(kind), "vip_mask": batch.vips.to(kind)}
        assert difference(wrapped(input_ids=batch.ids, **masks), expected) == 0
