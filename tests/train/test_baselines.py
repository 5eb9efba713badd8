"""The models VCC is compared with train and evaluate through the same commands, as they are."""

from pathlib import Path

import pytest
from transformers import (
    BigBirdConfig,
    LEDConfig,
    LongformerConfig,
    LongT5Config,
    PreTrainedConfig,
    RobertaConfig,
    T5Config,
)

from tests.train import small
from vcc.cli import main
from vcc.tasks.needle import needle_tokenizer
from vcc.train.models import padding, vip_name

WORDS = dict(vocab_size=300, pad_token_id=0, bos_token_id=2, eos_token_id=3, sep_token_id=3)
SIZES = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
T5 = dict(d_model=16, d_kv=8, d_ff=16, num_layers=2, num_decoder_layers=1, num_heads=2, decoder_start_token_id=0)
CONFIGS: dict[str, PreTrainedConfig] = {
    "roberta": RobertaConfig(**WORDS, **SIZES, max_position_embeddings=132),
    "longformer": LongformerConfig(**WORDS, **SIZES, max_position_embeddings=132, attention_window=16),
    "bigbird": BigBirdConfig(**WORDS, **SIZES, max_position_embeddings=512, block_size=8, num_random_blocks=1),
    "led": LEDConfig(
        **WORDS,
        d_model=16,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        attention_window=16,
        max_encoder_position_embeddings=128,
        max_decoder_position_embeddings=64,
        decoder_start_token_id=3,
    ),
    "longt5": LongT5Config(**WORDS, **T5, local_radius=8),
    "t5": T5Config(**WORDS, **T5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_a_baseline_trains_and_evaluates_as_it_is(name: str, tmp_path: Path) -> None:
    small.encoder_decoder(tmp_path / "model")  # its tokenizer has an end mark too
    CONFIGS[name].save_pretrained(tmp_path / "model")
    common = ["--lengths", "120", "--length", "120", "--vcc", "false", "--device", "cpu"]
    assert (
        main(
            [
                "finetune",
                "needle",
                "--model",
                str(tmp_path / "model"),
                "--out",
                str(tmp_path / "run"),
                "--fresh",
                "--steps",
                "2",
                "--batch-size",
                "2",
                *common,
            ]
        )
        == 0
    )
    assert main(["evaluate", "needle", "--model", str(tmp_path / "run"), "--examples", "3", *common]) == 0


def test_baselines_are_guarded() -> None:
    from transformers import AutoModelForQuestionAnswering, AutoModelForSeq2SeqLM

    bird = AutoModelForQuestionAnswering.from_config(CONFIGS["bigbird"])
    assert padding(bird, 120) == 120 and vip_name(bird) is None
    led = AutoModelForSeq2SeqLM.from_config(CONFIGS["led"])
    assert padding(led, 120) == 1 and vip_name(led) == "global_attention_mask"
    assert needle_tokenizer().pad_token_id == 0
