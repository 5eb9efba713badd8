"""Tiny tokenizers and the place of the real data, for tests of data and tasks."""

import os
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertTokenizerFast, PreTrainedTokenizerFast, RobertaTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def bert_like(text: str) -> Any:
    """[CLS] a [SEP] b [SEP], segments 0 and 1; one token a word or sign."""
    return _tokenizer(
        text,
        SPECIAL,
        processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        ),
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def roberta_like(text: str) -> Any:
    """<s> a </s></s> b </s>, no segments."""
    return _tokenizer(
        text,
        SPECIAL,
        processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        ),
    )


def t5_like(text: str, sentinels: int = 100) -> Any:
    """a </s>, no CLS, with sentinels."""
    specials = ["<pad>", "</s>", "<unk>", *(f"<extra_id_{i}>" for i in range(sentinels))]
    raw = _raw(text, specials, "<unk>")
    raw.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def _tokenizer(text: str, specials: list[str], post: Any, **settings: Any) -> Any:
    raw = _raw(text, specials, "[UNK]")
    raw.post_processor = post
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        **settings,
    )


def _raw(text: str, specials: list[str], unknown: str) -> Tokenizer:
    split = pre_tokenizers.BertPreTokenizer()
    words = dict.fromkeys(word for word, _ in split.pre_tokenize_str(text))
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*specials, *words])}, unk_token=unknown))
    raw.pre_tokenizer = split
    return raw


def real_data(name: str = "") -> Path:
    """A folder of the real data, or skip."""
    root = Path(os.environ.get("VCC_DATA", Path(__file__).parents[2] / ".." / "shared" / "data")).resolve()
    if not (root / name).is_dir():
        pytest.skip(f"the real data is not here: set VCC_DATA to a folder that holds {name or 'it'}")
    return root / name


def real_tokenizer(kind: str) -> Any:
    """A tokenizer from a real vocabulary: bert_uncased, gpt2 (in RoBERTa's layout) or t5; or skip."""
    folder = real_data("tokenizers") / kind
    if kind == "bert_uncased":
        return BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    if kind == "gpt2":
        return RobertaTokenizerFast(vocab=str(folder / "encoder.json"), merges=str(folder / "vocab.bpe"))
    pieces = pytest.importorskip("sentencepiece", reason="T5's vocabulary needs sentencepiece")
    model = pieces.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    scored = [(model.id_to_piece(i), model.get_score(i)) for i in range(model.get_piece_size())]
    scored += [(f"<extra_id_{i}>", 0.0) for i in reversed(range(100))]
    raw = Tokenizer(models.Unigram(scored, unk_id=2))
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
