"""Which model: what is loaded, what is refused, how a model is told of the VIPs."""

from pathlib import Path

import pytest
from transformers import AutoModelForQuestionAnswering, AutoModelForSeq2SeqLM, BertConfig, LEDConfig

from tests.data.words import bert_like
from tests.train import small
from tests.train.test_baselines import CONFIGS
from vcc.errors import UsageError
from vcc.train.models import ModelChoice, load_model, load_tokenizer, resolve
from vcc.train.objectives import Answering


def test_a_path_that_is_not_there_is_not_looked_for_on_the_hub() -> None:
    for name in ("./nowhere", "/nowhere", "runs/first/checkpoint-9"):
        with pytest.raises(UsageError, match="no such folder"):
            resolve(name)


def test_a_model_that_cannot_be_wrapped_is_refused_with_the_types_that_can(tmp_path: Path) -> None:
    small.encoder(tmp_path)
    CONFIGS["longformer"].save_pretrained(tmp_path)
    choice = ModelChoice(str(tmp_path), fresh=True)
    with pytest.raises(UsageError, match=r"cannot wrap LongformerFor.*bert, electra.*--vcc false"):
        load_model(choice, AutoModelForQuestionAnswering, 64, 0, load_tokenizer(choice), new_head=True)


def test_segments_are_numbered_for_models_that_know_them() -> None:
    tokenizer = bert_like("a b c")
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    bert = AutoModelForQuestionAnswering.from_config(BertConfig(vocab_size=9, **sizes))
    one_kind = AutoModelForQuestionAnswering.from_config(BertConfig(vocab_size=9, type_vocab_size=1, **sizes))
    led = AutoModelForSeq2SeqLM.from_config(CONFIGS["led"])
    assert isinstance(led.config, LEDConfig)
    assert Answering.of(bert, tokenizer, "span", 64).collator.token_types
    assert not Answering.of(one_kind, tokenizer, "span", 64).collator.token_types
    assert not Answering.of(led, tokenizer, "text", 64).collator.token_types
