"""Longformer with FlexAttention is Hugging Face's Longformer, up to rounding."""

import copy

import pytest
import torch
from transformers import LongformerConfig, LongformerModel

from reproduction.baselines.flex_longformer import neighbours, use_flex
from reproduction.baselines.longformer import lengthened
from vcc.errors import ModelError

SMALL = dict(vocab_size=120, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
SPECIAL = dict(pad_token_id=0, bos_token_id=2, eos_token_id=3, sep_token_id=3, attention_probs_dropout_prob=0.0)


def longformer(**changes: object) -> LongformerModel:
    torch.manual_seed(0)
    given = {**SMALL, **SPECIAL, "max_position_embeddings": 700, "attention_window": [64, 320], **changes}
    model = LongformerModel(LongformerConfig(**given)).double().eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("global_tokens", [0, 1, 150])
def test_it_equals_hugging_faces(global_tokens: int) -> None:
    """With windows of two sizes, padding on the right, and global tokens within and beyond the first block."""
    model = longformer()
    ids = torch.randint(5, 120, (2, 600), generator=torch.Generator().manual_seed(1))
    real = torch.ones_like(ids)
    real[1, 450:] = 0
    is_global = (torch.arange(600) < global_tokens).long().expand(2, 600).clone()
    is_global[1, 10:] = 0
    given = {"input_ids": ids * real, "attention_mask": real, "global_attention_mask": is_global}
    flex = use_flex(copy.deepcopy(model))
    with torch.no_grad():
        expected, actual = (each(**given).last_hidden_state[real.bool()] for each in (model, flex))
    assert float((actual - expected).abs().max() / expected.abs().max()) < 1e-6  # its probabilities are float32


def test_blocks_cover_the_windows_and_the_prefix() -> None:
    number, index = neighbours(1000, side=130, prefix=129, device=torch.device("cpu"))
    for block, (many, which) in enumerate(zip(number.tolist(), index.tolist(), strict=True)):
        assert set(which[:many]) == {0, 1} | {other for other in range(8) if abs(other - block) <= 2}


def test_dropout_of_probabilities_is_rejected() -> None:
    with pytest.raises(ModelError, match="attention_probs_dropout_prob is 0.1: it must be 0"):
        use_flex(longformer(attention_probs_dropout_prob=0.1))


def test_positions_are_repeated_for_longer_inputs() -> None:
    """Behind its 699 positions a Longformer begins with the first one again; what it could read stays as it was."""
    model = longformer()
    ids = torch.randint(5, 120, (1, 1400), generator=torch.Generator().manual_seed(1))
    longer = lengthened(copy.deepcopy(model), 1400)
    table, own = (each.embeddings.position_embeddings.weight for each in (longer, model))
    assert torch.equal(table[1:700], own[1:]) and torch.equal(table[700:1399], own[1:])
    assert longer.config.max_position_embeddings == len(table) == 1401 and table.requires_grad
    with torch.no_grad():
        assert torch.equal(longer(ids[:, :640]).last_hidden_state, model(ids[:, :640]).last_hidden_state)
        assert longer(ids).last_hidden_state.shape == (1, 1400, 32)
    assert lengthened(model, 600) is model and len(model.embeddings.position_embeddings.weight) == 700
