"""Make every model of the comparison from one BERT or RoBERTa: same weights, longer positions, another attention."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from transformers import PreTrainedModel

from reproduction.baselines.block_models import use_blocks
from reproduction.baselines.longformer import to_longformer
from reproduction.baselines.patterns import BigBird, Mra
from reproduction.baselines.windows import Windows
from vcc.config import VccConfig
from vcc.errors import UsageError
from vcc.hosts.wrap import unwrap, wrap

Start = Callable[[PreTrainedModel, int, dict[str, Any]], PreTrainedModel]


def dense(model: PreTrainedModel, length: int, options: dict[str, Any]) -> PreTrainedModel:
    """Full attention, positions repeated: the paper's RoBERTa at 4K."""
    known(options, ())
    return unwrap(wrap(model, VccConfig(), max_length=length))


def truncated(model: PreTrainedModel, length: int, options: dict[str, Any]) -> PreTrainedModel:
    """The model unchanged: it reads the first tokens only."""
    known(options, ())
    return model


def compressed(model: PreTrainedModel, length: int, options: dict[str, Any]) -> PreTrainedModel:
    """VCC in the paper's setting: a third of the layers on windows, the rest on the cut, opened by attention."""
    known(options, [field.name for field in fields(VccConfig)])
    return wrap(model, replace(VccConfig(dense_below=0), **options), max_length=length)


def longformer(model: PreTrainedModel, length: int, options: dict[str, Any]) -> PreTrainedModel:
    known(options, ("window",))
    return to_longformer(model, length, **options)


def windows(model: PreTrainedModel, length: int, options: dict[str, Any]) -> PreTrainedModel:
    """Longformer's windows and global tokens without its own projections for these: for models that its class cannot
    be, such as pre-norm ones."""
    known(options, ("window",))
    return use_blocks(dense(model, length, {}), Windows(**options))


def bigbird(model: PreTrainedModel, length: int, options: dict[str, Any]) -> PreTrainedModel:
    known(options, [field.name for field in fields(BigBird)])
    return use_blocks(dense(model, length, {}), BigBird(**options))


def mra(model: PreTrainedModel, length: int, options: dict[str, Any]) -> PreTrainedModel:
    known(options, [field.name for field in fields(Mra)])
    return use_blocks(dense(model, length, {}), Mra(**options))


@dataclass(frozen=True)
class Baseline:
    """One model of the comparison."""

    start: Start
    in_paper: str  # what the paper's tables call it
    vips: str | None = None  # its argument for the tokens that matter; None: it has none


KINDS: dict[str, Baseline] = {
    "vcc": Baseline(compressed, "VCC", "vip_mask"),
    "dense-512": Baseline(truncated, "RoBERTa"),
    "dense": Baseline(dense, "RoBERTa"),
    "longformer": Baseline(longformer, "Longformer", "global_attention_mask"),
    "windows": Baseline(windows, "Longformer", "global_attention_mask"),
    "bigbird": Baseline(bigbird, "BigBird"),
    "mra": Baseline(mra, "MRA"),
}


def start_from(model: PreTrainedModel, kind: str, length: int, **options: Any) -> PreTrainedModel:
    """A model of this kind for `length` tokens, with a copy of the weights of `model`."""
    if kind not in KINDS:
        raise UsageError(f"{kind!r} must be one of {', '.join(KINDS)}")
    return KINDS[kind].start(copy.deepcopy(unwrap(model)), length, options)


def known(options: dict[str, Any], names: Any) -> None:
    unknown = sorted(set(options) - set(names))
    if unknown:
        raise UsageError(f"unknown options {', '.join(unknown)}: there are {', '.join(names) or 'none'}")
