"""A causal decoder whose prefix is compressed, as in appendix A.5 of the paper.

A sequence is a prefix and the tokens to predict after it, the suffix. In every layer the prefix is a tree, and its cut
is chosen by the first token of the suffix alone: later ones would tell it what is to come. The layer runs on the cut
and on the whole suffix; a row sees those at its own position and before. With every node open this is the plain model.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from vcc.config import VccConfig
from vcc.core.rows import UNSEEN, Rows
from vcc.encode import run_layers, run_windows, to_tree, to_windows
from vcc.errors import UsageError
from vcc.hosts.families import find_family
from vcc.hosts.families.host import LayerParts
from vcc.hosts.families.layer import HookedLayer
from vcc.hosts.families.rotary import EuroBertHost
from vcc.tasks.paper import paper_recipe

COMPRESSION = paper_recipe("qmsum", "text").compression  # of the paper's encoder-decoders


class EnteredLayer(HookedLayer, LlamaDecoderLayer):
    """Llama's layer, which VCC can enter."""


@dataclass(frozen=True)
class PrefixHost(EuroBertHost):
    """Llama's layers, those of EuroBERT but for the mask: a row sees what is not behind it."""

    @staticmethod
    def of(model: Any) -> "PrefixHost":
        """The host around a model, whose layers are entered from now on; as a model it stays as it was."""
        family = find_family("eurobert")
        assert family is not None
        for layer in model.model.layers:
            if not isinstance(layer, EnteredLayer):
                layer.__class__ = EnteredLayer
        return PrefixHost(model.model, family)

    def describe(self, layer: Any) -> LayerParts:
        return replace(super().describe(layer), bias=causal)

    def score(self, index: int, vips: Rows, nodes: Rows) -> Tensor:
        first = Rows(vips.hidden[:, :1], vips.counts[:, :1], vips.positions[:, :1])
        return super().score(index, first, nodes)


def causal(q: Tensor, k: Tensor, asking: Tensor, asked: Tensor) -> Tensor:
    """(B, 1, m, n): nothing for keys at a query's position (B, m) or before it, UNSEEN for those (B, n) behind it."""
    behind = asked[:, None, :] > asking[:, :, None]
    return torch.zeros(behind.shape, dtype=q.dtype, device=q.device).masked_fill(behind, UNSEEN)[:, None]


def suffix_states(host: PrefixHost, ids: Tensor, suffix: int, config: VccConfig) -> Tensor:
    """The last states (B, suffix, D) of the last tokens of ids (B, n), with the others in a tree."""
    batch, n = ids.shape
    if not 0 < suffix < n:
        raise UsageError(f"a suffix of {suffix} of {n} tokens: it must be at least 1, and some must be before it")
    positions = torch.arange(n, device=ids.device).expand(batch, n)
    rows = Rows.of_tokens(host.model.embed_tokens(ids), torch.ones_like(ids), positions)
    vips = (positions >= n - suffix).long()
    config = replace(config.resolved(host.num_layers), max_vips=suffix)
    windows = run_windows(host, to_windows(rows, vips, config), config)
    return host.finish(run_layers(host, to_tree(windows, vips, config), config, None).vips.hidden)


# ------------------------------------------------------------------------------------------------- the compared models


@dataclass(frozen=True)
class PrefixReader:
    """One way to read and to learn."""

    told: str
    reads: str  # "all", "suffix", or "tree": all, with the prefix in a tree
    taught: str  # the tokens that are predicted in training: "all" or "suffix"
    fits: int  # sequences per forward pass in training
    settings: VccConfig | None = None


def compressed(**changed: Any) -> VccConfig:
    return VccConfig(COMPRESSION.scales, COMPRESSION.budget, **changed)


PREFIX_READERS: dict[str, PrefixReader] = {
    "dense": PrefixReader("full causal attention, all tokens predicted in training", "all", "all", 16),
    "dense-suffix": PrefixReader("full causal attention, the suffix predicted", "all", "suffix", 64),
    "short": PrefixReader("the suffix alone, without what is before it", "suffix", "suffix", 64),
    "vcc": PrefixReader("the prefix in a tree, a third of the layers on windows", "tree", "suffix", 32, compressed()),
    "vcc-every": PrefixReader(
        "the same, and the suffix sees all of the prefix in these layers", "tree", "suffix", 32,
        compressed(vip_window="every"),
    ),
    "vcc-tree": PrefixReader(
        "the prefix in a tree in every layer", "tree", "suffix", 32, compressed(window_layers=0)
    ),
}  # fmt: skip


def prefix_reader(name: str) -> PrefixReader:
    if name not in PREFIX_READERS:
        raise UsageError(f"unknown model {name!r}: it must be one of {', '.join(PREFIX_READERS)}")
    return PREFIX_READERS[name]


def small_llama(words: int, width: int, length: int) -> LlamaConfig:
    """A Llama of six layers. With 384 features and 30,000 words it has 22 million parameters, half of them
    embeddings."""
    heads = max(1, width // 64)
    return LlamaConfig(
        vocab_size=words, hidden_size=width, intermediate_size=8 * width // 3, num_hidden_layers=6,
        num_attention_heads=heads, num_key_value_heads=heads, max_position_embeddings=length, attention_dropout=0.0,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
