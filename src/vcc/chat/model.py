"""The causal language model of `vcc chat`, which the user chooses."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LogitsProcessorList, RepetitionPenaltyLogitsProcessor

from vcc.chat.kept import read_or_load
from vcc.chat.smollm2 import SMOLLM2, Tell, smollm2_folder
from vcc.decoders.config import DecoderConfig
from vcc.decoders.model import TreeDecoder
from vcc.decoders.wrap import is_decoder, wrap_decoder
from vcc.errors import ModelError, UsageError
from vcc.hosts.load import check_vocabulary, load_model, load_tokenizer

Message = dict[str, str]  # role and content, as in chat templates
# Chats are short: the last 2,048 tokens are read exactly, which is also faster, and older ones closely.
SETTINGS = DecoderConfig(mass=0.98, local=2048)
LEAST = 128  # tokens of a text that is worth keeping


def load_chat_model(folder: str = SMOLLM2, tell: Tell = lambda line: None, keep: bool = True) -> "ChatModel":
    """Load the model in a folder, or SmolLM2-135M-Instruct by its name; on the GPU if there is one.

    `keep`: what it has read of a document is kept between runs.
    """
    path = smollm2_folder(tell) if folder == SMOLLM2 and not Path(folder).exists() else Path(folder)
    if not (path / "config.json").is_file():
        raise ModelError(f"{path} is not the folder of a saved model: it has no config.json")
    tokenizer = load_tokenizer(path, local=True)
    model: Any
    model, _ = load_model(path, AutoModelForCausalLM, local=True)
    check_vocabulary(model, tokenizer)
    if is_decoder(model):  # other families keep their own cache
        model = wrap_decoder(model, SETTINGS)
    return ChatModel(model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), tokenizer, keep)


def against_repeating(given: int) -> LogitsProcessorList:
    """Small models tend to repeat themselves. Repeating the prompt, the first tokens, is allowed."""
    return LogitsProcessorList([RepetitionPenaltyLogitsProcessor(1.1, prompt_ignore_length=given)])


@dataclass(eq=False)
class ChatModel:
    """A causal language model and its tokenizer, with the cache of the current conversation."""

    model: Any
    tokenizer: Any
    keep: bool = False  # between runs, what it has read of a document
    cache: Any = field(default=None, init=False)
    seen: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64), init=False)  # (n,) in the cache
    document: Any = field(default=None, init=False)  # the text that conversations start with, read

    def __post_init__(self) -> None:
        if self.tokenizer.chat_template is None:
            raise ModelError(
                f"{self.tokenizer.name_or_path} has no chat template: it must be a model for conversations"
            )
        if self.positions < 256:
            raise ModelError(f"{self.tokenizer.name_or_path} reads {self.positions} tokens at most, too few for a chat")

    @cached_property
    def positions(self) -> int:
        """The number of tokens it can read."""
        return int(getattr(self.model.config, "max_position_embeddings", 0) or 2048)

    def length(self, text: str) -> int:
        return len(self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids)

    def ids_of(self, messages: Sequence[Message]) -> Tensor:
        """The tokens (n,) of a conversation, up to where the model answers."""
        text = self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
        return self.tokenizer(text, add_special_tokens=False, return_tensors="pt", verbose=False).input_ids[0].long()

    @torch.inference_mode()
    def reply(self, messages: Sequence[Message], longest: int) -> str:
        """Generate the next message greedily. Only new tokens are read."""
        ids = self.ids_of(messages)
        if len(ids) + longest > self.positions:
            raise UsageError(
                f"{len(ids)} tokens and an answer of {longest} are more than the {self.positions} it can read"
            )
        self.forget_unless(ids)
        out = self.model.generate(
            ids[None].to(self.model.device),
            attention_mask=torch.ones(1, len(ids), dtype=torch.int64, device=self.model.device),
            past_key_values=self.cache,
            max_new_tokens=longest,
            do_sample=False,
            logits_processor=against_repeating(len(ids)),
            pad_token_id=self.tokenizer.pad_token_id or self.tokenizer.eos_token_id,
            return_dict_in_generate=True,
        )
        self.cache = out.past_key_values
        self.seen = out.sequences[0, :-1].cpu()  # the last token was generated, not read
        return self.tokenizer.decode(out.sequences[0, len(ids) :], skip_special_tokens=True).strip()

    def start_with(self, ids: Sequence[int]) -> None:
        """Begin a conversation with tokens that are read once, also over several runs if they are kept."""
        if len(ids) < LEAST or not isinstance(self.model, TreeDecoder):
            return
        text = torch.tensor(ids)
        if self.document is None or not torch.equal(self.document.ids[0].cpu(), text):
            self.document = read_or_load(self.model, text, self.keep)
        self.cache, self.seen = self.document.branch(), text

    def forget_unless(self, ids: Tensor) -> None:
        """Keep the cache only if the conversation continues it, token by token."""
        n = len(self.seen)
        if not (0 < n < len(ids) and torch.equal(self.seen, ids[:n])):
            self.cache, self.seen = None, self.seen[:0]
