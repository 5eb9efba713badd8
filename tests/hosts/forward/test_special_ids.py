"""Separator and mask are this model's own, from its configuration, its tokenizer or the person; never the family's."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

import vcc
from tests.hosts.models import REAL, build, ragged
from vcc.hosts.families import find_family
from vcc.hosts.forward.special_ids import special_id

UNKNOWN = {"sep_token_id": None, "mask_token_id": None, "eos_token_id": None}
QUESTIONS = "AutoModelForQuestionAnswering"


def tokenizer(separator: int, mask: int) -> Any:
    """One whose separator and mask have these ids, as other vocabularies of one family have others."""
    words = {f"word{i}": i for i in range(120)}
    words = {word: i for word, i in words.items() if i not in (separator, mask)} | {"[S]": separator, "[M]": mask}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, "word1")), sep_token="[S]", mask_token="[M]"
    )


def ids(config: Any, family: str) -> tuple[int | None, int | None]:
    return special_id("sep", config, find_family(family)), special_id("mask", config, find_family(family))


@pytest.mark.parametrize("family", ["bert", "electra", "roberta", "xlm-roberta", "modernbert"])
def test_ids_come_from_the_tokenizer_beside_the_model(family: str, tmp_path: Path) -> None:
    """As SciBERT and German BERT (separator 103) and multilingual MiniLM (a BERT, separator 2) have others."""
    build(family, QUESTIONS, **UNKNOWN).save_pretrained(tmp_path)
    tokenizer(103, 7).save_pretrained(tmp_path)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path, dtype=torch.float64)
    wrapped = vcc.wrap(model, REAL)
    batch = ragged().row(2)
    batch.ids[batch.ids == 103] = 50
    batch.ids[0, [15, 30]] = 103
    question = (torch.arange(45) <= 15).long()[None]
    with torch.no_grad():
        found = wrapped(batch.ids)
        assert torch.equal(found.start_logits, wrapped(batch.ids, vip_mask=question).start_logits)
        assert not torch.equal(found.start_logits, wrapped(batch.ids, vip_length=3).start_logits)
    assert ids(wrapped.config, family) == (103, 7)
    assert getattr(model.config, "mask_token_id", None) is None, "the untouched model's configuration stays"
    wrapped.save_pretrained(tmp_path / "alone")  # without its tokenizer
    alone = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "alone")
    assert ids(alone.config, family) == (103, 7)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_ids_stay_when_the_vocabulary_grows(family: str, tmp_path: Path) -> None:
    build(family, QUESTIONS, **UNKNOWN).save_pretrained(tmp_path)
    tokenizer(103, 119).save_pretrained(tmp_path)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path)
    model.resize_token_embeddings(150)
    wrapped = vcc.wrap(model, REAL)
    assert ids(wrapped.config, family) == (103, 119)
    wrapped.resize_token_embeddings(170)
    assert ids(wrapped.config, family) == (103, 119)


@pytest.mark.parametrize(("head", "word"), [(QUESTIONS, "separator"), ("AutoModelForMaskedLM", "mask token")])
def test_what_nobody_tells_is_refused(head: str, word: str) -> None:
    wrapped, batch = vcc.wrap(build("bert", head, **UNKNOWN), REAL), ragged()
    with pytest.raises(ValueError, match=f"this model's {word} is unknown.*_token_id.*tokenizer=.*vip_mask"):
        wrapped(batch.ids, batch.real)
    with torch.no_grad():
        wrapped(batch.ids, batch.real, vip_mask=batch.vips)


def test_the_end_of_a_text_separates_only_in_families_where_it_does() -> None:
    for family, expected in (("bert", None), ("electra", None), ("roberta", 3), ("t5", 3)):
        config = build(family).config
        config.sep_token_id = None
        assert special_id("sep", config, find_family(family)) == expected


def test_an_id_beyond_the_vocabulary_is_not_believed() -> None:
    config = build("bert", sep_token_id=120).config
    assert special_id("sep", config, find_family("bert")) is None


def test_a_tokenizer_can_be_given_to_wrap() -> None:
    model = build("bert", QUESTIONS, **UNKNOWN)
    wrapped = vcc.wrap(model, REAL, tokenizer=tokenizer(103, 7))
    assert ids(wrapped.config, "bert") == (103, 7) and model.config.sep_token_id is None
