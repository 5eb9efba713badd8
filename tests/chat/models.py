"""A tiny random causal language model with a chat template, over the words of `tests.documents.small_model`."""

from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from tests.documents.small_model import WORDS

TEMPLATE = (
    "{% for message in messages %}<s> {{ message['role'] }} {{ message['content'] }} </s> {% endfor %}"
    "{% if add_generation_prompt %}<s> assistant{% endif %}"
)


def tokenizer(template: str | None = TEMPLATE) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["[UNK]", "<s>", "</s>", *WORDS, "system", "user", "assistant", "Question", ":", ".", "?", "[", "]"]
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.decoder = decoders.WordPiece()
    made = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="[UNK]", bos_token="<s>", eos_token="</s>")
    made.chat_template = template
    return made


def saved(folder: Path, family: str = "llama", template: str | None = TEMPLATE, positions: int = 2048) -> str:
    torch.manual_seed(0)
    sizes = {"vocab_size": len(tokenizer()), "bos_token_id": 1, "eos_token_id": 2}
    model: Any
    if family == "llama":
        wide = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
        model = LlamaForCausalLM(LlamaConfig(**sizes, **wide, max_position_embeddings=positions, pad_token_id=2))
    else:
        model = GPT2LMHeadModel(GPT2Config(**sizes, n_embd=16, n_layer=2, n_head=2, n_positions=positions))
    model.save_pretrained(folder)
    tokenizer(template).save_pretrained(folder)
    return str(folder)
