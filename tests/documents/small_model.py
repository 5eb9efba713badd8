"""A tiny random question-answering model with its tokenizer, and a document that it can read."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForQuestionAnswering

import vcc
from vcc.documents.asker import Asker
from vcc.documents.text import Text, join_pieces
from vcc.qa.settings import keep_settings, load_settings

WORDS = [f"w{i}" for i in range(60)]
SETTINGS = vcc.VccConfig(
    scales=(8, 2, 1), budget=(5, 6), window=16, window_layers=1, vip_window="own", dense_below=0, explore=0.0
)


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    vocabulary = {word: i for i, word in enumerate((*special, *WORDS, ".", "?"))}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def model(seed: int = 0, settings: vcc.VccConfig = SETTINGS) -> Any:
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(WORDS) + 7,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
        initializer_range=0.3,
        sep_token_id=3,
        attention_probs_dropout_prob=0.0,
    )
    made = vcc.wrap(BertForQuestionAnswering(config).eval(), settings)
    with torch.no_grad():  # otherwise nearly every random model finds no answer
        made.qa_outputs.weight.mul_(2)
    set_qa(made, threshold=0.0, doubt=0.0)
    return made


def set_qa(model: Any, **changes: Any) -> None:
    """Change how a model answers questions."""
    keep_settings(model.config, replace(load_settings(model.config), **changes))


def asker(seed: int = 0, settings: vcc.VccConfig = SETTINGS) -> Asker:
    return Asker(model(seed, settings), tokenizer())


def saved(folder: Path, seed: int = 0) -> str:
    model(seed).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return str(folder)


def text(words: int, seed: int = 0) -> str:
    rng = random.Random(seed)
    chosen = [rng.choice(WORDS) + ("." if rng.random() < 0.1 else "") for _ in range(words)]
    return "".join(word + ("\n\n" if i % 40 == 39 else " ") for i, word in enumerate(chosen))


def document(words: int = 230, seed: int = 0) -> Text:
    body, parts = join_pieces([("page 1", text(words, seed)), ("page 2", text(words, seed + 1))])
    return Text(body, "Words", "words.txt", parts)
