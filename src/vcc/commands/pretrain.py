"""Pretraining."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Literal

import torch
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM

from vcc.commands.options import at_least
from vcc.data.corpus import prepare, split_documents
from vcc.data.pretrain import MaskedLM, PretrainDataset, SpanCorruption
from vcc.errors import UsageError
from vcc.hosts.forward.wrapped import Wrapped
from vcc.hosts.quiet import quiet
from vcc.tasks.pretraining import PRETRAININGS
from vcc.train.draws import MaskedSequences
from vcc.train.models import (
    ModelChoice,
    described,
    layers_of,
    load_model,
    load_tokenizer,
    padding,
    reads_and_writes,
    vip_name,
)
from vcc.train.objectives import Filling
from vcc.train.perplexity import Perplexity
from vcc.train.record import PretrainRecord
from vcc.train.run import Training, fit, settle
from vcc.train.watch import say

ENDLESS = 2**62  # the corpus is repeated as often as a run needs
HELD_OUT_SEED = 0  # perplexity is measured with the same masks in every run
Preset = Literal["roberta-512", "vcc", "vcc-150k", "vcc-star", "baseline", "t5"]


def pretrain(
    data: Annotated[str, "training text: a file or folder (text, JSON lines, Parquet) or a hub name"],
    model: ModelChoice,
    training: Training,
    preset: Annotated[Preset | None, "one of the paper's pretrainings, for the defaults of the other options"] = None,
    length: Annotated[int | None, "tokens per sequence, packed with documents (default: the preset's)"] = None,
    mask_ratio: Annotated[float | None, "share of tokens to mask (default: the preset's)"] = None,
    mean_span: Annotated[float, "encoder-decoder: mean tokens per masked span"] = 3.0,
    cluster_window: Annotated[int | None, "encoder: mask only inside a few windows of this size"] = None,
    cluster_density: Annotated[float, "encoder: share of masked tokens in such a window"] = 0.3,
    field: Annotated[str, "text field of JSON lines and Parquet"] = "text",
    tokens_per_byte: Annotated[float, "drop data with more tokens per byte than this"] = 0.3,
    prepared: Annotated[Path | None, "folder for the tokenized data (default: inside --out)"] = None,
    eval_every: Annotated[int | None, "steps between measurements of held-out perplexity"] = None,
    eval_sequences: Annotated[int, "sequences per measurement"] = 100,
    held_out: Annotated[float, "share of documents held out for it"] = 0.01,
) -> Path:
    """Pretrain a model on long compressed sequences, with the paper's settings.

    Encoders learn masked language modelling, encoder-decoders span corruption; masked tokens and sentinels are the
    VIPs. Presets: roberta-512 (from scratch), vcc, vcc-150k, vcc-star (the paper's VCC*), baseline (without VCC, at
    4K), t5. The default is vcc for an encoder and t5 for an encoder-decoder.
    """
    from accelerate import PartialState

    at_least(1, length=length, mean_span=mean_span, cluster_window=cluster_window)
    at_least(1, eval_every=eval_every, eval_sequences=eval_sequences)
    for name, share in (("mask-ratio", mask_ratio), ("cluster-density", cluster_density), ("held-out", held_out)):
        if share is not None and not 0 < share < 1:
            raise UsageError(f"--{name} is {share}: it must be between 0 and 1")
    if not tokens_per_byte > 0:
        raise UsageError(f"--tokens-per-byte is {tokens_per_byte}: it must be greater than 0")
    quiet()
    tokenizer = load_tokenizer(model)
    writes = reads_and_writes(model)
    suggested = PRETRAININGS[preset or ("t5" if writes else "vcc")]
    if suggested.writes != writes:
        kind = "an encoder-decoder" if suggested.writes else "an encoder"
        raise UsageError(f"--preset {preset} is for {kind}, which {model.model} is not")
    if preset is not None:
        model = replace(
            model, fresh=model.fresh or suggested.fresh, vcc=suggested.vcc if model.vcc is None else model.vcc
        )
    length, ratio = length or suggested.length, mask_ratio or suggested.mask_ratio
    on_cpu = training.device == "cpu" or not torch.cuda.is_available()
    hiding: MaskedLM | SpanCorruption
    if writes:
        hiding = SpanCorruption.of(tokenizer, ratio=ratio, mean_span=mean_span)
    else:
        hiding = MaskedLM.of(tokenizer, ratio=ratio, cluster_window=cluster_window, cluster_density=cluster_density)
    with PartialState(cpu=on_cpu).main_process_first():
        folder = prepared or training.out / "tokens"
        store = prepare(data, tokenizer, folder, field=field, limit=tokens_per_byte, say=say)
    learned, held = split_documents(store, held_out) if eval_every else (None, None)
    sequences = PretrainDataset(store, hiding, length, training.seed, ENDLESS, learned)
    say(
        f"{store.report}\n{len(store.tokens):,} tokens in {len(store.ends):,} documents: an epoch has "
        f"{sequences.per_epoch:,} sequences of {length}; nothing is truncated"
    )
    # an untouched model that is compiled would run its head on all tokens
    compiled = not writes and model.vcc is not False
    settled = settle(training, suggested, sequences.per_epoch, suggested.steps, one_length=compiled)
    auto_class = AutoModelForSeq2SeqLM if writes else AutoModelForMaskedLM
    usual = suggested.compression_for(layers_of(model)) if suggested.compression else None
    network = load_model(model, auto_class, length, settled.seed, tokenizer, new_head=True, compression=usual)
    say(f"{ratio:.1%} of the tokens are masked; {described(network)}")
    vips = vip_name(network) if isinstance(network, Wrapped) else None  # only VCC treats masked tokens as global
    learning = Filling(writes, tokenizer.pad_token_id, vips, padding(network, length))
    perplexity = None
    if held is not None:
        told = PretrainDataset(store, hiding, length, HELD_OUT_SEED, ENDLESS, held)
        number = min(eval_sequences, told.per_epoch)
        types = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
        perplexity = Perplexity(told[:number], learning, min(settled.at_once, number), types[settled.precision])
        say(f"held out: {len(held):,} documents; perplexity is measured on {number:,} sequences of them")
    record = PretrainRecord(
        preset=preset,
        source=data,
        hiding={name: value for name, value in asdict(hiding).items() if isinstance(value, int | float | None)},
        length=length,
        tokens=len(store.tokens),
        data=store.digest,
        documents=len(store.ends),
        held_out=None if held is None else len(held),
        tokens_per_byte=tokens_per_byte,
        model=model.model,
        fresh=model.fresh,
        vcc=getattr(network.config, "vcc", None),
    )
    data_set, first = MaskedSequences(sequences), perplexity is not None
    return fit(
        settled, record, network, learning, data_set, tokenizer, length, perplexity, eval_every, eval_first=first
    )
