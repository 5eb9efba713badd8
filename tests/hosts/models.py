"""Tiny random Hugging Face models of every family, with every head, and inputs for them. No network."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import (
    AlbertConfig,
    BartConfig,
    BertConfig,
    CamembertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    EuroBertConfig,
    GteConfig,
    JinaEmbeddingsV3Config,
    ModernBertConfig,
    MPNetConfig,
    MT5Config,
    NomicBertConfig,
    PegasusConfig,
    PreTrainedConfig,
    PreTrainedModel,
    RobertaConfig,
    RobertaPreLayerNormConfig,
    T5Config,
    XLMRobertaConfig,
)
from transformers.models.auto import modeling_auto

import vcc  # registers the wrapped classes
from tests.deep import deep_but
from vcc.hosts.register import HEADS

PAD, LAST, MASK, VOCABULARY = 0, 3, 119, 120  # ids of padding, of the last token, which also separates, and of masks
TABLE = 80  # rows of the position tables

encoder = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "pad_token_id": PAD,
    "bos_token_id": 2,
    "eos_token_id": LAST,
    "sep_token_id": LAST,
    "mask_token_id": MASK,
}
distilbert = {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48}
deberta = {
    "max_position_embeddings": TABLE,
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_buckets": 8,
    "max_relative_positions": 20,
    "pos_att_type": "p2c|c2p",
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "position_biased_input": False,
}
tables = {"max_position_embeddings": TABLE, "type_vocab_size": 2}
t5 = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 16,
    "relative_attention_max_distance": 20,
    "pad_token_id": PAD,
    "eos_token_id": LAST,
    "decoder_start_token_id": PAD,
    "initializer_factor": 0.5,
}
bart = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": TABLE,
    "pad_token_id": PAD,
    "bos_token_id": 2,
    "eos_token_id": LAST,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
    "init_std": 0.1,
}

MAKERS: dict[str, tuple[type[PreTrainedConfig], dict[str, Any]]] = {
    "bert": (BertConfig, encoder | tables),
    "minilm": (BertConfig, encoder | tables | {"num_attention_heads": 8}),
    "electra": (ElectraConfig, encoder | tables | {"embedding_size": 24}),
    "distilbert": (
        DistilBertConfig,
        {name: value for name, value in encoder.items() if name.endswith("_id") or name == "vocab_size"}
        | distilbert
        | {"max_position_embeddings": TABLE},
    ),
    "albert": (AlbertConfig, encoder | tables | {"embedding_size": 24, "num_hidden_groups": 3}),
    "albert-shared": (AlbertConfig, encoder | tables | {"embedding_size": 24, "num_hidden_groups": 2}),
    "roberta": (RobertaConfig, encoder | tables),
    "xlm-roberta": (XLMRobertaConfig, encoder | tables),
    "camembert": (CamembertConfig, encoder | tables),
    "roberta-prelayernorm": (RobertaPreLayerNormConfig, encoder | tables),
    "mpnet": (MPNetConfig, encoder | {"max_position_embeddings": TABLE, "pad_token_id": 1}),
    "deberta-v3": (DebertaV2Config, encoder | deberta),
    "deberta-v2": (
        DebertaV2Config,
        encoder
        | deberta
        | {"share_att_key": False, "norm_rel_ebd": "none", "position_buckets": -1, "max_relative_positions": -1}
        | {"position_biased_input": True, "type_vocab_size": 2, "embedding_size": 24},
    ),
    "modernbert": (
        ModernBertConfig,
        encoder
        | {"max_position_embeddings": TABLE, "local_attention": 16, "global_attn_every_n_layers": 3}
        | {"cls_token_id": 2},
    ),
    "nomic-bert": (NomicBertConfig, encoder | tables),
    "jina-v3": (JinaEmbeddingsV3Config, encoder | tables),
    "gte": (GteConfig, encoder | tables | {"type_vocab_size": 0}),
    "eurobert": (
        EuroBertConfig,
        encoder | {"max_position_embeddings": TABLE, "num_key_value_heads": 2, "tie_word_embeddings": True},
    ),
    "t5": (T5Config, t5),
    "t5-v1.1": (T5Config, t5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "mt5": (MT5Config, t5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "bart": (BartConfig, bart),
    "pegasus": (PegasusConfig, bart | {"decoder_start_token_id": PAD, "scale_embedding": True}),
}
FAMILIES = tuple(MAKERS)
ONE_EACH = (  # hosts
    *("bert", "electra", "distilbert", "albert", "roberta", "roberta-prelayernorm", "mpnet", "deberta-v3"),
    *("modernbert", "jina-v3", "eurobert", "t5", "bart", "pegasus"),
)
# For tests of what a host does; families that share another's are in the deep run.
EVERY_HOST = deep_but(ONE_EACH, FAMILIES)
SEQ2SEQ = ("t5", "t5-v1.1", "mt5", "bart", "pegasus")
ROTARY = ("modernbert", "nomic-bert", "jina-v3", "gte", "eurobert")
RELATIVE = ("t5", "t5-v1.1", "mt5", "deberta-v3")
WITH_TABLE = tuple(family for family in FAMILIES if family not in ROTARY + RELATIVE)
AFTER_PADDING = ("roberta", "xlm-roberta", "camembert", "roberta-prelayernorm", "mpnet")
ONLY_EAGER = ("mpnet", "deberta-v3", "deberta-v2")  # Hugging Face has no other attention for these
EAGER_ROUNDS = ("modernbert", "eurobert")  # Hugging Face rounds their eager attention's probabilities to float32
# On the left they would classify padding, whose states are nobody's promise.
READS_PADDING = ("modernbert", "deberta-v3", "deberta-v2")
NOT_CHECKPOINTED = ("albert", "mpnet")  # Hugging Face's models do not support it

OPEN = vcc.VccConfig(scales=(8, 2, 1), budget=(99, 999), window_layers=0, dense_below=0)
REAL = vcc.VccConfig(scales=(8, 2, 1), budget=(3, 4), window=12, window_layers=1, explore=0.0, dense_below=0)


SHALLOW: dict[str, dict[str, int]] = {  # two layers, for what takes long
    **dict.fromkeys(FAMILIES, {"num_hidden_layers": 2}),
    "distilbert": {"n_layers": 2},
    **dict.fromkeys(("t5", "t5-v1.1", "mt5"), {"num_layers": 2, "num_decoder_layers": 1}),
    **dict.fromkeys(("bart", "pegasus"), {"encoder_layers": 2, "decoder_layers": 1}),
}


def config_of(family: str, **changes: Any) -> PreTrainedConfig:
    kind, values = MAKERS[family]
    return kind(**values | changes)


def heads_of(family: str) -> list[str]:
    """The Auto classes that have a model of this family."""
    model_type = MAKERS[family][0].model_type
    return [auto for auto, (table, _) in HEADS.items() if model_type in getattr(modeling_auto, table)]


EVERY_HEAD = [(family, head) for family in FAMILIES for head in heads_of(family) if head != "AutoModel"]
SOME_HEADS = [(family, head) for family, head in EVERY_HEAD if family in ONE_EACH]  # every host with every head
FEW = ("bert", "modernbert", "t5", "bart")


@cache
def weights(family: str, head: str) -> dict[str, Tensor]:
    """Random weights in float64, the same for every test; biases and norms too, so that each of them matters."""
    torch.manual_seed(FAMILIES.index(family))
    model = getattr(transformers, head).from_config(config_of(family), dtype=torch.float64)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model.state_dict()


def build(
    family: str,
    head: str = "AutoModel",
    dtype: torch.dtype = torch.float64,
    attention: str = "sdpa",
    **changes: Any,
) -> PreTrainedModel:
    """An untouched Hugging Face model, in eval mode."""
    auto = getattr(transformers, head)
    attention = "eager" if family in ONLY_EAGER else attention
    model = auto.from_config(config_of(family, **changes), dtype=torch.float64, attn_implementation=attention)
    report = model.load_state_dict(weights(family, head), strict=False)
    assert not report.missing_keys  # with fewer layers, weights are left over
    return model.to(dtype).eval()


@dataclass(frozen=True)
class Batch:
    """Token ids, what is real of them, and the VIPs: (B, n) each."""

    ids: Tensor
    real: Tensor
    vips: Tensor

    def row(self, index: int) -> "Batch":
        """One sequence alone, without its padding."""
        kept = self.real[index].bool()
        return Batch(self.ids[index][kept][None], self.real[index][kept][None], self.vips[index][kept][None])

    def inputs(self, family: str, head: str = "AutoModel") -> dict[str, Tensor]:
        """The arguments of a forward pass, without the VIPs."""
        pad = MAKERS[family][1]["pad_token_id"]
        given = {"input_ids": self.ids.masked_fill(self.real == 0, pad), "attention_mask": self.real}
        if head == "AutoModelForMultipleChoice":
            return {name: tensor[:, None].expand(-1, 2, -1).contiguous() for name, tensor in given.items()}
        own_decoder = ("AutoModel", "AutoModelForSeq2SeqLM", "AutoModelForMaskedLM")
        if family in SEQ2SEQ and head in own_decoder:
            return given | {"decoder_input_ids": torch.arange(5, 12).expand(len(self.ids), 7)}
        return given

    def arguments(self, family: str, head: str = "AutoModel") -> dict[str, Tensor]:
        """The same for a wrapped model."""
        vips = self.vips[:, None].expand(-1, 2, -1) if head == "AutoModelForMultipleChoice" else self.vips
        return self.inputs(family, head) | {"vip_mask": vips}


def ragged(n: int = 45, seed: int = 0) -> Batch:
    """Three sequences: padded on the right, padded on the left, and not at all; with 7, 2 and 4 VIPs."""
    ids = torch.randint(8, VOCABULARY - 1, (3, n), generator=torch.Generator().manual_seed(seed))
    real = torch.ones_like(ids)
    real[0, n - 11 :] = 0
    real[1, :9] = 0
    vips = torch.zeros_like(ids)
    vips[0, 2:9] = 1
    vips[1, 20:22] = 1
    vips[2, [0, 11, 12, n - 1]] = 1
    ids[0, n - 12], ids[1, -1], ids[2, -1] = LAST, LAST, LAST
    return Batch(ids.masked_fill(real == 0, PAD), real, vips)


def one(n: int = 45, vips: int = 4, seed: int = 0) -> Batch:
    """One sequence without padding, whose first tokens are the VIPs."""
    ids = torch.randint(8, VOCABULARY - 1, (1, n), generator=torch.Generator().manual_seed(seed))
    ids[0, -1] = LAST
    return Batch(ids, torch.ones_like(ids), (torch.arange(n) < vips).long()[None])


def encoded(output: Any) -> Tensor:
    """The encoder's last hidden state, (B, n, D)."""
    seq2seq = "encoder_last_hidden_state" in output
    return output.encoder_last_hidden_state if seq2seq else output.last_hidden_state


def states(output: Any) -> tuple[Tensor, ...]:
    """The encoder's hidden states, (B, n, D) each; none if they were not asked for."""
    return output.get("encoder_hidden_states", output.get("hidden_states", ()))


def difference(actual: Any, expected: Any, real: Tensor | None = None) -> float:
    """The largest difference between two tensors or all tensors of two outputs, relative to the largest number.

    What belongs to padding is not looked at: `real` (B, n).
    """
    if not isinstance(expected, Tensor):
        assert list(actual.keys()) == list(expected.keys())
        names = [name for name in expected.keys() if isinstance(expected[name], Tensor)]  # noqa: SIM118 (not a dict)
        assert names
        return max(difference(actual[name], expected[name], real) for name in names)
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    if real is not None and expected.shape[:2] == real.shape:
        actual, expected = actual[real.bool()], expected[real.bool()]
    return float((actual - expected).detach().abs().max() / expected.detach().abs().max())
