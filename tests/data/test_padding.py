"""`vip_mask` comes out of Hugging Face's padding collators beside the tokens it was made for."""

from typing import Any

import pytest
import torch
from transformers import (
    DataCollatorForMultipleChoice,
    DataCollatorForSeq2Seq,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
)

from tests.hosts.forward.test_special_ids import tokenizer
from vcc.data.padding import WithVips

LENGTHS = (5, 9, 2)


def feature(n: int, **more: Any) -> dict[str, Any]:
    """VIPs are the tokens of even number, so that a mask beside the wrong tokens is seen."""
    ids = list(range(10, 10 + n))
    return {"input_ids": ids, "attention_mask": [1] * n, "vip_mask": [int(i % 2 == 0) for i in ids], **more}


def check(batch: Any) -> None:
    real = batch["attention_mask"] == 1
    assert torch.equal(batch["vip_mask"] == 1, real & (batch["input_ids"] % 2 == 0))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", [DataCollatorWithPadding, DataCollatorForTokenClassification, DataCollatorForSeq2Seq])
def test_masks_are_padded_where_the_tokens_are(kind: Any, side: str) -> None:
    words = tokenizer(103, 7)
    words.pad_token, words.padding_side = "word1", side
    labels = {} if kind is DataCollatorWithPadding else {"labels": True}
    features = [feature(n, **{name: list(range(n)) for name in labels}) for n in LENGTHS]
    batch = WithVips(kind(words, pad_to_multiple_of=4))(features)
    assert batch["vip_mask"].shape == (3, 12)
    check(batch)
    assert "vip_mask" in features[0], "what was given stays as it was"


def test_choices_have_masks_of_their_own() -> None:
    words = tokenizer(103, 7)
    words.pad_token = "word1"
    features = []
    for lengths in ((5, 9), (2, 3)):
        choices = [feature(n) for n in lengths]
        features.append({name: [choice[name] for choice in choices] for name in choices[0]} | {"label": 1})
    batch = WithVips(DataCollatorForMultipleChoice(words))(features)
    assert batch["vip_mask"].shape == (2, 2, 9)
    check(batch)


def test_features_without_masks_are_as_they_were_and_some_without_are_refused() -> None:
    words = tokenizer(103, 7)
    words.pad_token = "word1"
    plain = [{name: value for name, value in feature(n).items() if name != "vip_mask"} for n in LENGTHS]
    assert "vip_mask" not in WithVips(DataCollatorWithPadding(words))(plain)
    with pytest.raises(ValueError, match="1 of 2 features have a vip_mask"):
        WithVips(DataCollatorWithPadding(words))([feature(3), plain[0]])
