"""Small models and data in folders, as the commands read them."""

import json
from pathlib import Path

from transformers import BertConfig, T5Config

from vcc.tasks.needle import needle_tokenizer

SIZE = 16


def encoder(folder: Path) -> str:
    """Configuration and tokenizer of a tiny BERT: a model for --fresh."""
    tokenizer = needle_tokenizer()
    tokenizer.save_pretrained(folder)
    BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=SIZE,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=SIZE,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.25,
    ).save_pretrained(folder)
    return str(folder)


def encoder_decoder(folder: Path) -> str:
    """The same of a tiny T5, with sentinels."""
    tokenizer = needle_tokenizer()
    tokenizer.add_special_tokens({"eos_token": "[SEP]"})
    tokenizer.add_tokens([f"<extra_id_{i}>" for i in range(4)], special_tokens=True)
    tokenizer.save_pretrained(folder)
    T5Config(
        vocab_size=len(tokenizer),
        d_model=SIZE,
        d_kv=8,
        d_ff=SIZE,
        num_layers=2,
        num_decoder_layers=1,
        num_heads=2,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    ).save_pretrained(folder)
    return str(folder)


def stories(folder: Path) -> str:
    """A file in QuALITY's format: the right option is the word that the story repeats."""
    for split in ("train", "validation"):
        with (folder / f"{split}.jsonl").open("w") as file:
            for i in range(6):
                options = [f"value{(i + j) % 64}" for j in range(4)]
                questions = [
                    {
                        "question": f"key{i}",
                        "question_unique_id": f"{split}{i}",
                        "options": options,
                        "gold_label": i % 4 + 1,
                    }
                ]
                record = {"article": f"{options[i % 4]} word1 " * 40, "article_id": str(i), "questions": questions}
                file.write(json.dumps(record) + "\n")
    return str(folder)


def books(folder: Path) -> str:
    """Plain text to pretrain on."""
    for i in range(3):
        (folder / f"book{i}.txt").write_text(" ".join(f"word{(i + j * j) % 128}" for j in range(400)))
    return str(folder)
