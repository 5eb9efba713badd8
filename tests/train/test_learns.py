"""It learns: a tiny model, from nothing, on a CPU, finds a needle among 4,096 tokens; one that sees 512 does not."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig

from vcc.cli import main
from vcc.tasks.needle import Needle, needle_tokenizer

WIDTH, LENGTH, SHORT = 64, 4096, 512
COMMON = ["--train-examples", 200_000, "--lr", 2e-3, "--log-every", 50, "--save-every", 1000, "--device", "cpu"]


def model(folder: Path) -> Path:
    """Two layers, so no layer on windows; 64 positions, repeated up to any length."""
    tokenizer = needle_tokenizer()
    tokenizer.save_pretrained(folder)
    BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=WIDTH**-0.5,
    ).save_pretrained(folder)
    return folder


def run(*arguments: Any) -> None:
    assert main([str(argument) for argument in arguments]) == 0


def score(run_folder: Path, *options: Any) -> float:
    run("evaluate", "needle", "--model", run_folder, "--examples", 300, "--batch-size", 4, "--device", "cpu", *options)
    return json.loads((run_folder / "evaluation-needle-validation" / "metrics.json").read_text())["metrics"]["em"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_needle_among_4096_tokens_is_found_and_truncation_finds_it_by_chance(seed: int, tmp_path: Path) -> None:
    start, short, long = model(tmp_path / "model"), tmp_path / "short", tmp_path / "long"
    common = [*COMMON, "--seed", seed]
    # First short texts, so that the question and its key find each other; then the length itself, with the paper's
    # k = 16 and h = 90, which are the defaults.
    run(
        "finetune",
        "needle",
        "--model",
        start,
        "--fresh",
        "--out",
        short,
        "--lengths",
        256,
        "--length",
        256,
        "--steps",
        250,
        "--batch-size",
        16,
        *common,
    )
    run(
        "finetune",
        "needle",
        "--model",
        short,
        "--out",
        long,
        "--length",
        LENGTH,
        "--steps",
        250,
        "--batch-size",
        4,
        *common,
    )
    vcc = json.loads((long / "run.json").read_text())["vcc"]
    assert (vcc["scales"], vcc["budget"]) == ([16, 1], [90])
    assert score(long) > 90

    cut = tmp_path / "cut"  # the same model and training, on the first 512 tokens, which are too few to be compressed
    run(
        "finetune",
        "needle",
        "--model",
        short,
        "--out",
        cut,
        "--length",
        SHORT,
        "--steps",
        250,
        "--batch-size",
        4,
        *common,
    )
    examples = Needle().load("validation")[:300]
    in_sight = sum(example.meta["depth"] * LENGTH < SHORT for example in examples) / len(examples)
    assert score(cut, "--length", SHORT) < 100 * in_sight + 5
