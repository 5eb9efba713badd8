"""BERT for question answering in torch alone, to load the bundled model without transformers, which takes seconds to
import.

Modules and weights have the names of Hugging Face's, so `BertHost` runs them like a wrapped model: here are no
equations of its own but those of single modules. It is for inference; training and every other model use
`vcc.hosts.load`. A test compares both.
"""

import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from vcc.config import VccConfig
from vcc.core.rows import Rows
from vcc.errors import ModelError
from vcc.hosts import PREFIX
from vcc.hosts.eight_bit_weights import restored
from vcc.hosts.families import find_family
from vcc.hosts.families.bert import BertHost

FIXED = {"model_type": f"{PREFIX}bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}


class SavedConfig(SimpleNamespace):
    """The values of a config.json."""

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def empty_table(size: int, width: int) -> nn.Embedding:
    """Embeddings without numbers. Random ones take time, and on no device they make torch import its compiler."""
    return nn.Embedding(size, width, _weight=torch.empty(size, width))


class Embeddings(nn.Module):
    """Words, token types and positions; `BertHost` adds them up."""

    def __init__(self, config: SavedConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.word_embeddings = empty_table(config.vocab_size, width)
        self.position_embeddings = empty_table(config.max_position_embeddings, width)
        self.token_type_embeddings = empty_table(config.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)


class SelfAttention(nn.Module):
    """The projections of attention, which `BertHost` calls."""

    def __init__(self, config: SavedConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.attention_head_size = width // config.num_attention_heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)


class ResidualNorm(nn.Module):
    """A projection back to the model's width, added to what it is given beside, and normalised."""

    def __init__(self, config: SavedConfig, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden: Tensor, beside: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(hidden)) + beside)


class Widening(nn.Module):
    """The first half of the feed-forward part."""

    def __init__(self, config: SavedConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.intermediate_act_fn = nn.GELU()

    def forward(self, hidden: Tensor) -> Tensor:
        return self.intermediate_act_fn(self.dense(hidden))


class PlainLayer(nn.Module):
    """One layer, entered as `vcc.hosts.families.layer.HookedLayer` is."""

    def __init__(self, config: SavedConfig) -> None:
        super().__init__()
        self.attention = nn.Module()
        self.attention.self = SelfAttention(config)
        self.attention.output = ResidualNorm(config, config.hidden_size)
        self.intermediate = Widening(config)
        self.output = ResidualNorm(config, config.intermediate_size)

    def feed_forward_chunk(self, hidden: Tensor) -> Tensor:
        return self.output(self.intermediate(hidden), hidden)

    def forward(self, hidden: Tensor, instead: Callable[..., Tensor]) -> Tensor:
        return instead(hidden)


class EncoderOutput(NamedTuple):
    last_hidden_state: Tensor  # (B, n, D)


class SpanLogits(NamedTuple):
    start_logits: Tensor  # (B, n)
    end_logits: Tensor


class PlainEncoder(nn.Module):
    """Embeddings and layers. Called, it reads short texts without compression."""

    def __init__(self, config: SavedConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(PlainLayer(config) for _ in range(config.num_hidden_layers))

    @property
    def host(self) -> BertHost:
        family = find_family(self.config.model_type)
        assert family is not None
        return BertHost(self, family)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> EncoderOutput:
        host = self.host
        hidden = host.embed({"input_ids": input_ids, "token_type_ids": token_type_ids}, None)
        rows = Rows(hidden, attention_mask.to(hidden.dtype), torch.zeros_like(input_ids))
        for index in range(host.num_layers):
            rows = rows.with_hidden(host.layer(index, rows, consecutive=True))
        return EncoderOutput(rows.hidden)


class PlainBert(nn.Module):
    """The bundled model: an encoder with VCC's settings, and a linear layer for the first and last words of answers."""

    def __init__(self, config: SavedConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = PlainEncoder(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)

    @cached_property
    def vcc(self) -> VccConfig:
        return VccConfig.from_dict(self.config.vcc).resolved(self.config.num_hidden_layers)

    @property
    def base_model(self) -> PlainEncoder:
        return self.bert

    @property
    def device(self) -> torch.device:
        return self.qa_outputs.weight.device

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> SpanLogits:
        hidden = self.bert(input_ids, attention_mask, token_type_ids).last_hidden_state
        return SpanLogits(*self.qa_outputs(hidden).unbind(-1))


def load_plain_bert(folder: Path) -> PlainBert:
    """The bundled model in 32 bits, ready to answer. Raises a `ModelError` if a file is damaged or another model's."""
    try:
        config = SavedConfig(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
        wrong = {name: getattr(config, name) for name, needed in FIXED.items() if getattr(config, name) != needed}
        if wrong:
            raise ModelError(f"the bundled model in {folder} has {wrong}: it must have {FIXED}")
        with torch.device("meta"):  # no random numbers that the file's replace
            model = PlainBert(config)
        stored = load_file(folder / "model.safetensors")
        weights = {name: tensor.float() for name, tensor in restored(stored).items()}
        model.load_state_dict(weights, assign=True)
    except ModelError:
        raise
    except Exception as error:  # a damaged file can fail anywhere
        told = " ".join(str(error).split())
        raise ModelError(f"the bundled model in {folder} cannot be loaded: {told}") from error
    for name, tensor in weights.items():
        if not tensor.sum().isfinite():  # a sum is quicker than a look at each number, and not finite if one is not
            raise ModelError(
                f"the bundled model in {folder} is damaged: its weights {name} have NaN or infinite values"
            )
    return model.eval().requires_grad_(False)
