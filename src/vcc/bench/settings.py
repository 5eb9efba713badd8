"""Settings of a benchmark."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from vcc.bench.contenders import CONTENDERS, OFFERED, RESEARCH, SIZES, Options, baselines, has_decoder, reading
from vcc.errors import UsageError

LONGEST_TARGET = 1024  # tokens; the positions of LED's decoder


@dataclass(frozen=True)
class BenchSettings(Options):
    """Settings of the benchmark. Defaults are the preset's."""

    models: Annotated[tuple[str, ...], "some of " + ", ".join(OFFERED)]
    lengths: Annotated[tuple[int, ...], "input lengths in tokens"]
    size: Annotated[Literal["base", "large", "3b", "minilm", "tiny"], "size of every model; 3b is for T5 and LongT5"]
    precision: Annotated[Literal["fp32", "bf16", "autocast"], "bf16 includes the weights, autocast does not"]
    device: Annotated[Literal["cuda", "cpu"], "device to measure on"]
    training: Annotated[bool, "also time forward + backward"]
    batch: Annotated[int, "sequences per batch"] = 1
    fit: Annotated[bool, "double the batch until memory runs out, and time the largest that fits"] = False
    ragged: Annotated[float, "0.5: the last sequence is half as long as the first"] = 0.0
    dropout: Annotated[float, "dropout of every model in training"] = 0.0
    checkpointing: Annotated[bool, "recompute layers in the backward pass"] = False
    compile: Annotated[Literal["none", "ours", "all"], "vcc.compile and, for the others, torch.compile"] = "none"
    limit: Annotated[float | None, "seconds; skip cells predicted to take longer, assuming quadratic time"] = None
    profile: Annotated[bool, "profile our models by stage, and compiled ones by kernel"] = False
    workers: Annotated[int, "processes that compile concurrently; each is timed alone"] = 1
    patience: Annotated[float, "maximum seconds to prepare a worker, and again to time it"] = 300.0


PEERS = ("t5", "longt5-global", "led", "longformer", "bigbird", "modernbert")
PRESETS = {
    "gpu": BenchSettings(
        ("vcc-roberta", "vcc-t5", "roberta", *PEERS), (4096, 16384, 131072), "base", "bf16", "cuda", True
    ),
    "cpu": BenchSettings(("vcc-bert", "bert", *PEERS), (1024, 4096, 32768), "minilm", "fp32", "cpu", False),
}


def check(settings: BenchSettings) -> None:
    """Raise if these settings cannot be measured here. Runs of other machines can still be shown."""
    unknown = [model for model in settings.models if model not in CONTENDERS]
    if unknown:
        raise UsageError(f"models={','.join(unknown)}: they must be among {', '.join(OFFERED)}")
    if any(model in RESEARCH for model in settings.models):
        baselines("block_models")  # raises where the research code is missing
    if min(settings.lengths, default=0) < 32 or settings.batch < 1 or not 0 <= settings.ragged < 1:
        raise UsageError(
            f"lengths={settings.lengths}, batch={settings.batch}, ragged={settings.ragged}: lengths are at least 32 "
            "tokens, a batch is at least 1 sequence, and ragged is at least 0 and less than 1"
        )
    for length in settings.lengths:
        reading(length, settings)  # checks itself
    alone = [model for model in settings.models if SIZES[settings.size].head and not of_t5(model)]
    if alone:
        raise UsageError(f"size={settings.size}: {','.join(alone)} does not support the head width of this size")
    if settings.part == "decoder" and not all(map(has_decoder, settings.models)):
        without = [model for model in settings.models if not has_decoder(model)]
        raise UsageError(f"part=decoder: {','.join(without)} has no decoder")
    if not 1 <= settings.target <= LONGEST_TARGET:
        raise UsageError(f"target={settings.target}: it must be 1 to {LONGEST_TARGET} tokens")
    if settings.workers < 1 or settings.patience <= 0:
        raise UsageError(
            f"workers={settings.workers}, patience={settings.patience}: at least 1 worker, and more than 0 seconds"
        )
    flex = [model for model in settings.models if CONTENDERS[model].flex]
    if flex and settings.device == "cpu":
        raise UsageError(f"models={','.join(flex)}: FlexAttention must be measured on a GPU; it is slow on a CPU")
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device=cuda: PyTorch finds no CUDA GPU on this machine; --preset cpu runs without one")


def of_t5(model: str) -> bool:
    return model.removeprefix("vcc-").startswith(("t5", "longt5"))
