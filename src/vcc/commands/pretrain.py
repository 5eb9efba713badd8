"""Continued pretraining."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM

from vcc.commands.options import at_least
from vcc.data.corpus import prepare
from vcc.data.pretrain import MaskedLM, PretrainDataset, SpanCorruption
from vcc.errors import UsageError
from vcc.hosts.quiet import quiet
from vcc.tasks.pretraining import PRETRAININGS
from vcc.train.draws import MaskedSequences
from vcc.train.models import ModelChoice, load_model, load_tokenizer, reads_and_writes, vip_name
from vcc.train.objectives import Filling
from vcc.train.run import Training, fit, settle
from vcc.train.watch import say

ENDLESS = 2**62  # sequences a run may ask for: the corpus is read again and again


def pretrain(
    data: Annotated[str, "text to learn from: a file or folder (text, JSON lines, Parquet), or a hub name"],
    model: ModelChoice,
    training: Training,
    length: Annotated[int, "tokens of a sequence; documents are laid end to end to fill it"] = 4096,
    mask_ratio: Annotated[float | None, "share of tokens to hide; unless given 0.075, with a decoder 0.15"] = None,
    mean_span: Annotated[float, "encoder-decoder: tokens hidden by one sentinel, on average"] = 3.0,
    cluster_window: Annotated[int | None, "encoder: hide tokens in a few windows of this size, not everywhere"] = None,
    cluster_density: Annotated[float, "encoder: share of such a window that is hidden"] = 0.3,
    field: Annotated[str, "name of the field with the text, in JSON lines and Parquet"] = "text",
    tokens_per_byte: Annotated[float, "drop parts of the data that need more tokens than this a byte"] = 0.3,
    prepared: Annotated[Path | None, "folder for the tokenized data; unless given, inside --out"] = None,
) -> Path:
    """Continue the pretraining of a model on long sequences, so that it learns to read compressed ones.

    Encoders learn to fill in masked tokens, encoder-decoders to write what sentinels hide; the masked tokens and the
    sentinels are the VIPs.
    """
    from accelerate import PartialState

    at_least(1, length=length, mean_span=mean_span, cluster_window=cluster_window)
    for name, share in (("mask-ratio", mask_ratio), ("cluster-density", cluster_density)):
        if share is not None and not 0 < share < 1:
            raise UsageError(f"--{name} is {share}: it must lie between 0 and 1")
    if not tokens_per_byte > 0:
        raise UsageError(f"--tokens-per-byte is {tokens_per_byte}: it must be greater than 0")
    quiet()
    tokenizer = load_tokenizer(model)
    writes = reads_and_writes(model)
    suggested = PRETRAININGS["t5" if writes else "vcc"]
    on_cpu = training.device == "cpu" or not torch.cuda.is_available()
    hiding: MaskedLM | SpanCorruption
    if writes:
        hiding = SpanCorruption.of(tokenizer, ratio=mask_ratio or 0.15, mean_span=mean_span)
    else:
        hiding = MaskedLM.of(
            tokenizer, ratio=mask_ratio or 0.075, cluster_window=cluster_window, cluster_density=cluster_density
        )
    with PartialState(cpu=on_cpu).main_process_first():
        store = prepare(data, tokenizer, prepared or training.out / "tokens", field=field, limit=tokens_per_byte)
    sequences = PretrainDataset(store, hiding, length, training.seed, ENDLESS)
    say(
        f"{store.report}\n{len(store.tokens):,} tokens in {len(store.ends):,} documents: an epoch has "
        f"{sequences.per_epoch:,} sequences of {length}; nothing is truncated"
    )
    settled = settle(training, suggested, sequences.per_epoch, suggested.steps)
    auto_class = AutoModelForSeq2SeqLM if writes else AutoModelForMaskedLM
    network = load_model(model, auto_class, length, settled.seed, tokenizer, new_head=True)
    what = {
        "recipe": "pretrain",
        "source": data,
        "hiding": {name: value for name, value in asdict(hiding).items() if isinstance(value, int | float | None)},
        "length": length,
        "tokens": len(store.tokens),
        "data": store.digest,
        "documents": len(store.ends),
        "tokens_per_byte": tokens_per_byte,
        "model": model.model,
        "fresh": model.fresh,
        "vcc": getattr(network.config, "vcc", None),
    }
    learning = Filling(writes, tokenizer.pad_token_id, vip_name(network))
    return fit(settled, what, network, learning, MaskedSequences(sequences), tokenizer, length)
