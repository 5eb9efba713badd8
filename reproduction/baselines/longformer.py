"""A Longformer that starts as a copy of a BERT or RoBERTa, as its authors made theirs."""

from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn
from transformers import PreTrainedModel

from vcc.errors import ModelError

HEADS = {
    "Model": hf.LongformerModel,
    "ForMaskedLM": hf.LongformerForMaskedLM,
    "ForQuestionAnswering": hf.LongformerForQuestionAnswering,
    "ForSequenceClassification": hf.LongformerForSequenceClassification,
    "ForMultipleChoice": hf.LongformerForMultipleChoice,
}
PREFIXES = {"bert": "Bert", "roberta": "Roberta"}
# Longformer's head for masked words has RoBERTa's names; BERT's differ.
MASKED_LM = {
    "cls.predictions.transform.dense.": "lm_head.dense.",
    "cls.predictions.transform.LayerNorm.": "lm_head.layer_norm.",
    "cls.predictions.decoder.": "lm_head.decoder.",
    "cls.predictions.bias": "lm_head.bias",
}


def to_longformer(model: PreTrainedModel, length: int, window: int | tuple[int, ...] = 512) -> PreTrainedModel:
    """The Longformer of the same head with these weights. Projections of global tokens start as copies of the others,
    positions repeat. `window` counts the tokens that each one sees, half of them on each side.
    """
    kind = model.config.model_type
    head = type(model).__name__.removeprefix(PREFIXES.get(kind, "?"))
    if kind not in PREFIXES or head not in HEADS:
        raise ModelError(
            f"{type(model).__name__} cannot become a Longformer: it must be a BERT or RoBERTa with a head "
            f"of {', '.join(HEADS)}"
        )
    config = model.config
    offset = config.pad_token_id + 1  # Longformer's positions start after the padding token's id, like RoBERTa's
    theirs = hf.LongformerConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        intermediate_size=config.intermediate_size,
        hidden_act=config.hidden_act,
        hidden_dropout_prob=config.hidden_dropout_prob,
        attention_probs_dropout_prob=config.attention_probs_dropout_prob,
        type_vocab_size=config.type_vocab_size,
        initializer_range=config.initializer_range,
        layer_norm_eps=config.layer_norm_eps,
        max_position_embeddings=length + offset,
        pad_token_id=config.pad_token_id,
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        sep_token_id=config.sep_token_id if getattr(config, "sep_token_id", None) is not None else 2,
        attention_window=window if isinstance(window, int) else list(window),
    )
    theirs.num_labels = config.num_labels or 2
    made = HEADS[head](theirs).to(dtype=model.dtype, device=model.device)
    own = renamed(model)
    table = own["longformer.embeddings.position_embeddings.weight"]
    first = offset if kind == "roberta" else 0
    own["longformer.embeddings.position_embeddings.weight"] = repeated(table, first, offset, length)
    for key in [key for key in own if ".attention.self." in key]:
        for name in ("query", "key", "value"):
            own[key.replace(f".{name}.", f".{name}_global.")] = own[key]
    wanted = made.state_dict()
    strip = "" if head != "Model" else "longformer."
    own = {key.removeprefix(strip): value for key, value in own.items()}
    missing = sorted(key for key in wanted if key not in own and "position_ids" not in key and "pooler." not in key)
    if missing:
        raise ModelError(f"{type(model).__name__} has no weights for {', '.join(missing[:4])} of a Longformer")
    made.load_state_dict({key: own[key] for key in wanted if key in own}, strict=False)
    made.tie_weights()
    return made.train(model.training)


def lengthened(model: PreTrainedModel, length: int) -> PreTrainedModel:
    """The Longformer itself with `length` positions or more: those that it has, repeated."""
    embeddings: Any = model.base_model.embeddings
    own, offset = embeddings.position_embeddings.weight.data, embeddings.padding_idx + 1
    if length + offset > len(own):
        table = repeated(own, offset, offset, length)
        embeddings.position_embeddings = nn.Embedding.from_pretrained(table, False, embeddings.padding_idx)
        model.config.max_position_embeddings = len(table)
    return model


def renamed(model: PreTrainedModel) -> dict[str, Tensor]:
    """The weights under Longformer's names, those of the base below `longformer.`"""
    prefix = model.base_model_prefix + "."
    whole = model.base_model is model
    found = {}
    for key, value in model.state_dict().items():
        name = "longformer." + key.removeprefix(prefix) if whole or key.startswith(prefix) else key
        for theirs, ours in MASKED_LM.items():
            if name.startswith(theirs):
                name = ours + name.removeprefix(theirs)
        found[name] = value.clone()
    return found


def repeated(table: Tensor, first: int, offset: int, length: int) -> Tensor:
    """`offset` zero rows for padding, then `length` positions: those from `first` on, repeated."""
    known = table[first:]
    again = known[torch.arange(length, device=table.device) % len(known)]
    return torch.cat([torch.zeros_like(known[:1]).expand(offset, -1), again])
