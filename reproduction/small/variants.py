"""The compared models: every kind with its settings, and how to load it with other ones."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForMaskedLM, PreTrainedModel

from reproduction.baselines.block_models import pattern_of, restore_blocks, use_blocks
from reproduction.baselines.flex_longformer import use_flex
from reproduction.baselines.longformer import lengthened
from reproduction.baselines.start import KINDS, start_from
from reproduction.small.layout import PRESTART, START
from reproduction.small.pieces import with_types
from vcc.config import VccConfig
from vcc.data.example import Head
from vcc.errors import UsageError
from vcc.hosts import load
from vcc.hosts.compiled.compile import compile as compile_vcc
from vcc.hosts.forward.choices import in_one_sequence
from vcc.hosts.forward.wrapped import state_of
from vcc.hosts.wrap import wrap
from vcc.tasks.paper import paper_recipe
from vcc.tasks.pretraining import PRETRAININGS
from vcc.train.objectives import AUTO_CLASSES

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
    start: str = START  # the common checkpoint
    closing: float = 0.0  # share of the training on tasks over which the budget closes
    opening: float = 0.0  # weight of the loss that teaches what to open
    label: str = ""  # in pictures, where its name says too little
    pieces: bool = False  # texts are cut into pieces with ids

    def pretrain_steps(self, everybody: int) -> int:
        return round(everybody * self.steps)

    def tune_steps(self, everybody: int) -> int:
        return round(everybody * self.tuning)


# The paper's two resolutions; k and h are those of its released code, for masked words and for HotpotQA.
MASKED = PRETRAININGS["vcc"].compression_for(layers=6)
ASKED = paper_recipe("hotpotqa", "span").compression
MASKING: Changes = {"scales": MASKED.scales, "budget": MASKED.budget}
ANSWERING: Changes = {"scales": ASKED.scales, "budget": ASKED.budget}


def vcc(
    told: str,
    steps: float = 1.0,
    tuning: float = 1.0,
    start: str = START,
    closing: float = 0.0,
    opening: float = 0.0,
    label: str = "",
    pieces: bool = False,
    **changed: Any,
) -> Variant:
    # a budget goes with its scales; one for answers alone is not that of masked words
    both = {name: value for name, value in changed.items() if name != "budget" or "scales" in changed}
    return Variant(
        "vcc", {**MASKING, **both}, {**ANSWERING, **changed}, steps, tuning, told, start, closing, opening, label,
        pieces,
    )  # fmt: skip


def near(layers: int, also: str = "", **changed: Any) -> Variant:
    """Every layer sees the question, and no row sees a position twice."""
    more = f", {also}" if also else ""
    return vcc(
        f"{layers} layers on windows, every window sees the question, rows of a cut see the question and what "
        f"is at most 256 tokens away, means at a token's norm, opening is taught{more}",
        opening=0.5,
        label=f"VCC, near rows, {layers} window layer{'s' if layers > 1 else ''}{more}",
        window_layers=layers,
        mean_norm=True,
        vip_window="every",
        reach=256,
        **changed,
    )


VARIANTS: dict[str, Variant] = {
    "vcc": vcc(
        "the paper's setting: a third of the layers on windows, opened by attention, k = 16, h = 70",
        label="VCC, the paper's setting",
    ),
    "dense-512": Variant("dense-512", told="full attention, the first tokens only"),
    "dense": Variant("dense", told="full attention, positions repeated", label="dense attention"),
    "longformer": Variant(
        "longformer", told="window 512, the question global; FlexAttention on a GPU", label="Longformer"
    ),
    "bigbird": Variant("bigbird", told="blocks of 64, window 3, random 3"),
    "mra": Variant("mra", told="blocks of 32, 8 per row"),
    "longformer-hf": Variant("longformer", {"flex": False}, {"flex": False}, told="the same, Hugging Face's chunks"),
    # from the pre-norm checkpoint
    "vcc-pre": vcc("the paper's setting, pre-norm", start=PRESTART),
    "dense-512-pre": Variant("dense-512", told="full attention, the first tokens only, pre-norm", start=PRESTART),
    "dense-pre": Variant("dense", told="full attention, positions repeated, pre-norm", start=PRESTART),
    "longformer-pre": Variant("windows", told="window 512, the question global, pre-norm", start=PRESTART),
    "bigbird-pre": Variant("bigbird", told="blocks of 64, window 3, random 3, pre-norm", start=PRESTART),
    "mra-pre": Variant("mra", told="blocks of 32, 8 per row, pre-norm", start=PRESTART),
    # possible improvements, one change each
    "vcc-norm": vcc("means at the norm of a token", mean_norm=True),
    "vcc-every": vcc("every window sees the question", vip_window="every"),
    "vcc-closing": vcc("the budget closes over the first 30% of a task", closing=0.3),
    "vcc-taught": vcc("what to open is taught", opening=0.5),
    "vcc-gates": vcc("closed rows teach the score too", gate_closed=True),
    "vcc-mass": vcc("opened until closed nodes have 10% of the attention, h = 140 at most", mass=0.9, budget=(140,)),
    "vcc-all": vcc(
        "means at a token's norm, every window sees the question, the budget closes, opening is taught",
        mean_norm=True,
        vip_window="every",
        closing=0.3,
        opening=0.5,
    ),
    "vcc-all-open": vcc(
        "the same, h = 140", mean_norm=True, vip_window="every", closing=0.3, opening=0.5, budget=(140,)
    ),
    "vcc-pre-all": vcc(
        "pre-norm, every window sees the question, the budget closes, opening is taught",
        start=PRESTART,
        vip_window="every",
        closing=0.3,
        opening=0.5,
    ),
    "vcc-question": vcc(
        "four layers on windows, every window sees the question, means at a token's norm, opening is taught",
        window_layers=4,
        mean_norm=True,
        vip_window="every",
        opening=0.5,
        label="VCC, question in 4 window layers",
    ),
    "vcc-reach": vcc("rows of a cut see the question and what is at most 256 tokens away", reach=256),
    **{f"vcc-near-{layers}": near(layers) for layers in (1, 2, 3, 4)},
    "vcc-near-2-few": near(2, "h = 32", budget=(32,)),
    "vcc-near-2-wide": near(2, "segments of 32, h = 20", scales=(32, 1), budget=(20,)),
    "vcc-near-2-fast": near(2, "segments of 32, h = 20, windows of 256", scales=(32, 1), budget=(20,), window=256),
    "vcc-near-2-wider": near(2, "segments of 32, h = 40", scales=(32, 1), budget=(40,)),
    "vcc-near-3-wide": near(3, "segments of 32, h = 20", scales=(32, 1), budget=(20,)),
    "vcc-near-4-wide": near(4, "segments of 32, h = 20", scales=(32, 1), budget=(20,)),
    "vcc-near-3-fast": near(3, "segments of 32, h = 20, windows of 256", scales=(32, 1), budget=(20,), window=256),
    "vcc-pieces": vcc("texts in pieces with special tokens and ids, shuffled in pretraining", pieces=True),
    "vcc-near-2-pieces": near(2, "texts in pieces with ids", pieces=True),
    "vcc-half": vcc("half of the pretraining: the paper's 150k", steps=0.5),
    "vcc-more": vcc("twice the pretraining: the paper's VCC*", steps=2),
    "vcc-as-long": vcc("four times the steps of pretraining and of each task: Longformer's time", steps=4, tuning=4),
    "vcc-open": vcc("h = 140", budget=(140,)),
    "vcc-still": vcc("no random cuts in training", explore=0.0),
    "vcc-similarity": vcc("opened by similarity of means", score="similarity"),
    "vcc-later": vcc("four layers on windows", window_layers=4),
    "vcc-last": vcc("five layers on windows, opened by similarity", window_layers=5, score="similarity"),
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
    model = with_types(model) if chosen.pieces else model
    return start_from(model, chosen.kind, length, **without_flex(chosen.pretraining))


def reading(
    name: str, start: Path, length: int, options: Changes | None = None, head: Head = "span"
) -> PreTrainedModel:
    """The model with the head of a task, from a dense one: a reader, or the common checkpoint with a new head."""
    model, _ = load.load_model(start, AUTO_CLASSES[head], local=True, new_head=True)
    chosen = variant(name)
    model = with_types(model) if chosen.pieces else model
    model = start_from(model, chosen.kind, length, **without_flex({**chosen.answering, **(options or {})}))
    return in_one_sequence(model) if head == "choice" and chosen.kind != "vcc" else model


def without_flex(options: Changes) -> Changes:
    return {name: value for name, value in options.items() if name != "flex"}


def make_fast(name: str, model: Any, device: str, compile: bool, vips: int | None = None) -> None:
    """Compile in place for batches of one shape, as each kind is fastest. Blocks stay as they are: the number of pairs
    that they choose is read from the device. `vips`: the most VIPs of any batch, which are then of one shape too."""
    chosen = variant(name)
    if chosen.kind == "longformer" and device == "cuda" and chosen.answering.get("flex", True):
        use_flex(model, compile)
    elif compile and chosen.kind == "vcc":
        compile_vcc(model, whole=False)
        if vips is not None:  # not saved with the model
            state_of(model).settings = replace(model.vcc, max_vips=vips)
    elif compile and chosen.kind == "windows":
        for layer in model.base_model.encoder.layer:
            layer.feed_forward_chunk = torch.compile(layer.feed_forward_chunk, dynamic=False)
            layer.attention.output.compile(dynamic=False)
    elif compile and chosen.kind in ("dense", "dense-512"):
        model.base_model.compile(dynamic=False)


def loaded(
    name: str, folder: Path, length: int, options: Changes | None = None, new_head: bool = False, head: Head = "span"
) -> Any:
    """The model with the head of a task, from a folder; `options` replace its own for answering."""
    chosen = variant(name)
    options = without_flex({**chosen.answering, **(options or {})})
    model: Any
    if chosen.kind == "longformer" and "window" in options:
        config = load.load_config(folder, local=True)
        config.attention_window = [options["window"]] * config.num_hidden_layers
        model = AUTO_CLASSES[head].from_pretrained(folder, config=config, local_files_only=True)
    else:
        model, _ = load.load_model(folder, AUTO_CLASSES[head], local=True, new_head=new_head)
    model = restore_blocks(model)
    if chosen.kind == "vcc":
        return wrap(model, replace(VccConfig.from_dict(model.config.vcc), **options), max_length=length)
    pattern: Any = pattern_of(model)
    if pattern is not None:
        use_blocks(model, replace(pattern, **options))
    if chosen.kind == "longformer":
        model = lengthened(model, length)
    if chosen.kind == "dense" and length > model.config.max_position_embeddings:
        model = start_from(model, "dense", length)
    return in_one_sequence(model) if head == "choice" else model


def as_closed(name: str, share: float) -> Changes:
    """Settings that open the same share of a shorter input."""
    budget = variant(name).answering.get("budget")
    return {"budget": tuple(max(1, round(h * share)) for h in budget)} if budget else {}


def vip_name(name: str) -> str | None:
    return KINDS[variant(name).kind].vips


def reads(name: str, length: int, short: int) -> int:
    """Tokens of a document that this model reads."""
    return short if variant(name).kind == "dense-512" else length
