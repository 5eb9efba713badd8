"""The compared encoder-decoders: all have the weights of one T5 and differ in how they read."""

from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path
from typing import Any, Literal

from torch import nn
from transformers import AutoModelForSeq2SeqLM, T5Config

from reproduction.baselines.longt5 import longt5_from
from reproduction.small.settings import Small
from vcc.config import VccConfig
from vcc.errors import UsageError
from vcc.hosts import load
from vcc.hosts.compiled.compile import compile as compile_vcc
from vcc.hosts.forward.wrapped import state_of
from vcc.hosts.wrap import wrap
from vcc.tasks.paper import paper_recipe

BATCH = 32  # sequences per step on a task at most, one of the paper's two
DROPOUT = 0.1  # on a task, of hidden states; attention has none, as in pretraining
COMPRESSION = paper_recipe("qmsum", "text").compression


@dataclass(frozen=True)
class Writer:
    """One encoder-decoder."""

    kind: Literal["t5", "vcc", "longt5"]
    times: int  # tokens read, in lengths of the small scale; 0: the short one
    fits: int  # sequences per forward pass in training
    told: str

    def reads(self, small: Small) -> int:
        return self.times * small.length or small.short

    def settings(self, small: Small) -> Small:
        """The settings with the batch of this model."""
        batch = min(small.batch, BATCH)
        return replace(small, batch=batch, at_once=gcd(batch, small.at_once, self.fits))


OURS = f"the question's tokens are VIPs, k = {COMPRESSION.k}, h = {COMPRESSION.h}"
WRITERS: dict[str, Writer] = {
    "t5-512": Writer("t5", 0, 32, "full attention, the first tokens only"),
    "t5": Writer("t5", 1, 8, "full attention"),
    "vcc-t5": Writer("vcc", 1, 32, OURS),
    "vcc-t5-16k": Writer("vcc", 4, 8, f"{OURS}, four times the tokens"),
    "longt5": Writer("longt5", 1, 16, "128 tokens around, and every block of 16 tokens"),
    "longt5-16k": Writer("longt5", 4, 4, "the same, four times the tokens"),
}


def writer(name: str) -> Writer:
    if name not in WRITERS:
        raise UsageError(f"unknown model {name!r}: it must be one of {', '.join(WRITERS)}")
    return WRITERS[name]


def small_t5(tokenizer: Any) -> T5Config:
    """A T5 of 37 million parameters, a third of them embeddings. No dropout in pretraining, as in version 1.1."""
    config = T5Config(
        vocab_size=-(-len(tokenizer) // 128) * 128, d_model=384, d_kv=64, d_ff=1024, num_layers=6, num_decoder_layers=6,
        num_heads=6, feed_forward_proj="gated-gelu", dropout_rate=0.0,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    config.decoder_start_token_id = tokenizer.pad_token_id
    return config


def started(name: str, start: Path) -> Any:
    """The model with the weights of the common T5."""
    model: Any
    model, _ = load.load_model(start, AutoModelForSeq2SeqLM, local=True)
    kind = writer(name).kind
    if kind == "longt5":
        return longt5_from(model)
    if kind == "vcc":
        return wrap(model, VccConfig(COMPRESSION.scales, COMPRESSION.budget, dense_below=0))
    return model


def tuned(folder: Path) -> Any:
    """A model that was trained on a task, as it was saved."""
    model, _ = load.load_model(folder, AutoModelForSeq2SeqLM, local=True)
    return model


def make_fast(name: str, model: Any, vips: int) -> None:
    """Compile in place for batches of one shape. `vips`: the most VIPs of any row."""
    if writer(name).kind == "vcc":
        compile_vcc(model, whole=False)
        state_of(model).settings = replace(model.vcc, max_vips=-(-vips // 32) * 32)  # not saved with the model
    else:
        model.get_encoder().compile(dynamic=False)
    model.get_decoder().compile(dynamic=False)


def with_dropout(model: nn.Module, rate: float) -> None:
    """Dropout of hidden states. That of attention is no module and stays as the configuration has it."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate


def vip_name(name: str) -> str | None:
    return "vip_mask" if writer(name).kind == "vcc" else None
