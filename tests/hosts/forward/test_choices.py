"""Multiple choice in one sequence: the document is read once, and the head is Hugging Face's own."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMultipleChoice, BigBirdConfig, LongformerConfig

import vcc
from tests.hosts.models import FAMILIES, OPEN, REAL, SEQ2SEQ, WITH_TABLE, build, difference, heads_of, ragged
from vcc.hosts.forward.choices import in_one_sequence
from vcc.hosts.forward.encoder import find_encoder

CHOICE = "AutoModelForMultipleChoice"
ENCODERS = [family for family in FAMILIES if family not in SEQ2SEQ and CHOICE in heads_of(family)]
FIRST = torch.zeros(3, 1, dtype=torch.long)  # the first token of each row as its only choice
TOKENS = torch.tensor([[4, 9, 12], [11, 20, 30], [3, 7, 40]])
SMALL = dict(vocab_size=120, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
SPECIAL = dict(pad_token_id=0, bos_token_id=2, eos_token_id=3, sep_token_id=3)
OTHERS = {
    "longformer": LongformerConfig(**SMALL, **SPECIAL, max_position_embeddings=80, attention_window=16),
    "big_bird": BigBirdConfig(**SMALL, **SPECIAL, max_position_embeddings=64, attention_type="original_full"),
}


@pytest.mark.parametrize("family", ENCODERS)
def test_a_choice_closed_by_the_first_token_has_the_score_that_hugging_face_gives(family: str) -> None:
    """Its heads score a sequence by its first token: an oracle for what happens behind the encoder, for each family."""
    model, batch = build(family, CHOICE), ragged()
    batch.real[:] = 1
    given = batch.inputs(family)
    with torch.no_grad():
        expected = model(**{name: value[:, None] for name, value in given.items()}).logits
        wrapped = vcc.wrap(model, OPEN)(**given, vip_mask=batch.vips, choice_tokens=FIRST).logits
        plain = in_one_sequence(build(family, CHOICE))(**given, choice_tokens=FIRST).logits
    assert difference(wrapped, expected) < 1e-10 and difference(plain, expected) < 1e-10


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_each_choice_is_scored_by_the_state_of_its_token(family: str) -> None:
    wrapped, batch = vcc.wrap(build(family, CHOICE), REAL), ragged()
    given = {"input_ids": batch.ids, "attention_mask": batch.real, "vip_mask": batch.vips}
    with torch.no_grad():
        logits = wrapped(**given, choice_tokens=TOKENS).logits
        hidden = wrapped.base_model(**given).last_hidden_state
        for row, places in enumerate(TOKENS):
            states = hidden[row, places]  # (C, D)
            states = torch.tanh(wrapped.bert.pooler.dense(states)) if family == "bert" else wrapped.head(states)
            assert difference(logits[row], wrapped.classifier(states)[:, 0]) < 1e-10


def test_the_document_is_read_once_for_all_choices() -> None:
    wrapped, batch = vcc.wrap(build("roberta", CHOICE), REAL), ragged()
    wrapped(input_ids=batch.ids, attention_mask=batch.real, choice_tokens=TOKENS.repeat(1, 26))  # 78 choices
    assert find_encoder(wrapped).vcc_state.inputs_read == 3


def test_question_and_choices_are_the_vips_unless_others_are_named() -> None:
    wrapped, batch = vcc.wrap(build("roberta", CHOICE), REAL), ragged()
    batch.real[:] = 1
    given = {"input_ids": batch.ids, "choice_tokens": TOKENS}
    vips = (torch.arange(45) <= TOKENS.amax(1, keepdim=True)).long()
    with torch.no_grad():
        assert torch.equal(wrapped(**given).logits, wrapped(**given, vip_mask=vips).logits)
        assert not torch.equal(wrapped(**given).logits, wrapped(**given, vip_mask=batch.vips).logits)


@pytest.mark.parametrize("name", OTHERS)
def test_models_that_are_not_ours_take_choices_in_one_sequence_too(name: str, tmp_path: Path) -> None:
    """And are saved under the names that Hugging Face knows."""
    plain = AutoModelForMultipleChoice.from_config(OTHERS[name]).eval()
    kind, keys = type(plain), set(plain.state_dict())
    model = in_one_sequence(plain)
    ids = ragged().ids[:, :48].clamp(min=5)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    first = {**given}
    if name == "longformer":
        given["global_attention_mask"] = (torch.arange(45) < 4).long().expand(3, 45)
        first = {name: value[:, None] for name, value in given.items()}
    else:
        first = {name: value[:, None] for name, value in first.items()}
    with torch.no_grad():
        torch.testing.assert_close(model(**given, choice_tokens=FIRST).logits, model(**first).logits)
        assert model(**given, choice_tokens=TOKENS).logits.shape == (3, 3)
    model.save_pretrained(tmp_path)
    again = AutoModelForMultipleChoice.from_pretrained(tmp_path)
    assert type(again) is kind and set(again.state_dict()) == keys and again.config.architectures == [kind.__name__]


@pytest.mark.parametrize("family", ["roberta", "electra"])
def test_gradients_reach_head_and_encoder(family: str) -> None:
    assert family in WITH_TABLE
    wrapped, batch = vcc.wrap(build(family, CHOICE), REAL), ragged()
    output = wrapped(
        input_ids=batch.ids, attention_mask=batch.real, choice_tokens=TOKENS, labels=torch.tensor([0, 2, 1])
    )
    output.loss.backward()
    assert wrapped.classifier.weight.grad.norm() > 0
    assert find_encoder(wrapped).embeddings.word_embeddings.weight.grad.norm() > 0
