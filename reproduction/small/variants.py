"""The compared models: every kind with its settings, and how to load it with other ones."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import AutoModelForMaskedLM, AutoModelForQuestionAnswering, PreTrainedModel

from reproduction.baselines.block_models import pattern_of, restore_blocks, use_blocks
from reproduction.baselines.start import KINDS, start_from
from vcc.config import VccConfig
from vcc.errors import UsageError
from vcc.hosts import load
from vcc.hosts.wrap import wrap
from vcc.tasks.paper import paper_recipe
from vcc.tasks.pretraining import PRETRAININGS

Changes = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """A kind of model, its settings in pretraining and in answering, and its training length."""

    kind: str
    pretraining: Changes = field(default_factory=dict)
    answering: Changes = field(default_factory=dict)
    steps: float = 1.0  # of pretraining, relative to the others
    tuning: float = 1.0  # steps on a task, likewise
    told: str = ""

    def pretrain_steps(self, everybody: int) -> int:
        return round(everybody * self.steps)

    def tune_steps(self, everybody: int) -> int:
        return round(everybody * self.tuning)


# The paper's two resolutions; k and h are those of its released code, for masked words and for HotpotQA.
MASKED = PRETRAININGS["vcc"].compression_for(layers=6)
ASKED = paper_recipe("hotpotqa", "span").compression
MASKING: Changes = {"scales": MASKED.scales, "budget": MASKED.budget}
ANSWERING: Changes = {"scales": ASKED.scales, "budget": ASKED.budget}


def vcc(told: str, steps: float = 1.0, tuning: float = 1.0, **changed: Any) -> Variant:
    both = {name: value for name, value in changed.items() if name != "budget"}
    return Variant("vcc", {**MASKING, **both}, {**ANSWERING, **changed}, steps, tuning, told)


VARIANTS: dict[str, Variant] = {
    "vcc": vcc("the paper's setting: a third of the layers on windows, opened by attention, k = 16, h = 70"),
    "dense-512": Variant("dense-512", told="full attention, the first tokens only"),
    "dense": Variant("dense", told="full attention, positions repeated"),
    "longformer": Variant("longformer", told="window 512, the question global"),
    "bigbird": Variant("bigbird", told="blocks of 64, window 3, random 3"),
    "mra": Variant("mra", told="blocks of 32, 8 per row"),
    # possible improvements, one change each
    "vcc-half": vcc("half of the pretraining: the paper's 150k", steps=0.5),
    "vcc-more": vcc("twice the pretraining: the paper's VCC*", steps=2),
    "vcc-as-long": vcc("four times the steps of pretraining and of each task: Longformer's time", steps=4, tuning=4),
    "vcc-open": vcc("h = 140", budget=(140,)),
    "vcc-still": vcc("no random cuts in training", explore=0.0),
    "vcc-similarity": vcc("opened by similarity of means", score="similarity"),
    "vcc-later": vcc("four of six layers on windows", window_layers=4),
    "vcc-last": vcc("five of six layers on windows, opened by similarity", window_layers=5, score="similarity"),
}
TABLE = ("vcc", "dense-512", "dense", "longformer", "bigbird", "mra")


def variant(name: str) -> Variant:
    if name not in VARIANTS:
        raise UsageError(f"unknown model {name!r}: it must be one of {', '.join(VARIANTS)}")
    return VARIANTS[name]


def made(name: str, start: Path, length: int) -> PreTrainedModel:
    """The model with the head for masked words, from the common checkpoint."""
    model, _ = load.load_model(start, AutoModelForMaskedLM, local=True)
    chosen = variant(name)
    return start_from(model, chosen.kind, length, **chosen.pretraining)


def loaded(name: str, folder: Path, length: int, options: Changes | None = None, new_head: bool = False) -> Any:
    """The model with the head for spans, from a folder; `options` replace its own for answering."""
    chosen = variant(name)
    options = {**chosen.answering, **(options or {})}
    model: Any
    if chosen.kind == "longformer" and "window" in options:
        config = load.load_config(folder, local=True)
        config.attention_window = [options["window"]] * config.num_hidden_layers
        model = AutoModelForQuestionAnswering.from_pretrained(folder, config=config, local_files_only=True)
    else:
        model, _ = load.load_model(folder, AutoModelForQuestionAnswering, local=True, new_head=new_head)
    model = restore_blocks(model)
    if chosen.kind == "vcc":
        return wrap(model, replace(VccConfig.from_dict(model.config.vcc), **options), max_length=length)
    pattern: Any = pattern_of(model)
    if pattern is not None:
        use_blocks(model, replace(pattern, **options))
    if chosen.kind == "dense" and length > model.config.max_position_embeddings:
        return start_from(model, "dense", length)
    return model


def as_closed(name: str, share: float) -> Changes:
    """Settings that open the same share of a shorter input."""
    budget = variant(name).answering.get("budget")
    return {"budget": tuple(max(1, round(h * share)) for h in budget)} if budget else {}


def vip_name(name: str) -> str | None:
    return KINDS[variant(name).kind].vips


def reads(name: str, length: int, short: int) -> int:
    """Tokens of a document that this model reads."""
    return short if variant(name).kind == "dense-512" else length
