"""Choose and load a model: by name or folder, wrapped or not, with saved or random weights."""

import functools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from transformers import AutoModelForMultipleChoice, PreTrainedModel, PreTrainedTokenizerBase, set_seed

from vcc.checkout import research
from vcc.config import VccConfig
from vcc.data.example import Head
from vcc.errors import UsageError
from vcc.hosts import load
from vcc.hosts.compiled.compile import compile as compile_ours
from vcc.hosts.families import FAMILIES, Positions, find_family
from vcc.hosts.forward.choices import in_one_sequence
from vcc.hosts.forward.wrapped import Wrapped
from vcc.hosts.wrap import unwrap, wrap
from vcc.tasks.paper import Compression, paper_compression
from vcc.tasks.task import Task
from vcc.train.checkpoint import checkpoints, damage, record_of
from vcc.train.watch import say

# How models outside our families, used for comparison, count positions.
OTHERS_POSITIONS: dict[str, Positions] = {"longt5": "relative", "umt5": "relative", "longformer": "after padding"}

# Keys of a saved configuration that research code handles, and the function that applies them to a loaded model.
AFTER_LOAD = {"attention_blocks": ("baselines.block_models", "restore_blocks")}


@dataclass(frozen=True)
class ModelChoice:
    """The model. VCC settings default to those saved with the model, else to the paper's for the length. Every input is
    compressed (--dense-below 0) unless the model was trained otherwise.
    """

    model: Annotated[str, "Hugging Face name, model folder, or run folder (its newest valid checkpoint)"]
    tokenizer: Annotated[str | None, "name or folder of the tokenizer (default: the model's)"] = None
    fresh: Annotated[bool, "start from random weights, with the model's configuration and tokenizer"] = False
    vcc: Annotated[bool | None, "wrap the model with VCC (default: as in its training, else true)"] = None
    settings: Annotated[dict[str, Any], VccConfig] = field(default_factory=dict)  # those that were given

    def __post_init__(self) -> None:
        if self.settings and self.vcc is False:
            raise UsageError(f"--vcc false cannot be combined with {self.settings_given}")

    @property
    def settings_given(self) -> str:
        return ", ".join(f"--{name.replace('_', '-')}" for name in sorted(self.settings))

    @property
    def record(self) -> dict[str, Any]:
        """The settings of the run that made the model; empty for other models."""
        return record_of(Path(resolve(self.model)))


@functools.lru_cache
def resolve(name: str) -> str:
    """The folder to load from: the newest valid checkpoint if `name` is the folder of a run."""
    held = checkpoints(Path(name))
    for path in held:
        reason = damage(path)
        if reason is None:
            say(f"model: {path}")
            return str(path)
        say(f"checkpoint {path} is not usable: {reason}")
    if held:
        raise UsageError(f"{name} has no valid checkpoint")
    if not Path(name).exists() and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise UsageError(
            f"no model could be loaded from {name!r}: there is no such folder, and hub names look like owner/name"
        )
    return name


def load_tokenizer(choice: ModelChoice) -> PreTrainedTokenizerBase:
    return load.load_tokenizer(choice.tokenizer or resolve(choice.model))


def reads_and_writes(choice: ModelChoice) -> bool:
    """Whether the model is an encoder-decoder."""
    return bool(load.load_config(resolve(choice.model)).is_encoder_decoder)


def layers_of(choice: ModelChoice) -> int:
    return int(load.load_config(resolve(choice.model)).num_hidden_layers)


def choose_head(task: Task, head: Head | None, choice: ModelChoice) -> Head:
    """The requested head; by default text for an encoder-decoder, the task's first other head for an encoder."""
    writes = reads_and_writes(choice)
    fitting = [known for known in task.heads if (known == "text") == writes]
    if head is None and not fitting:
        kind = "an encoder-decoder" if writes else "an encoder"
        raise UsageError(f"{choice.model} is {kind}, and {task.name} has only the heads {', '.join(task.heads)}")
    return task.check_head(head or fitting[0])


def load_model(
    choice: ModelChoice,
    auto_class: Any,
    length: int,
    seed: int,
    tokenizer: Any,
    *,
    new_head: bool,
    compression: Compression | None = None,
) -> PreTrainedModel:
    """Load the model for inputs of `length` tokens. `new_head`: its head may be new, to be trained.

    `compression`: k and h for a model saved without settings; None: the paper's for the length.
    """
    name = resolve(choice.model)
    set_seed(seed)  # new weights are random
    if choice.fresh:
        model = load.new_model(name, auto_class)
        say("warning: --fresh: all weights start at random")
    else:
        model, new = load.load_model(name, auto_class, new_head=new_head)
        if new:
            say(f"warning: {name} has no weights {', '.join(new)}: they start at random and have to be trained")
    load.check_vocabulary(model, tokenizer)
    if model.config.model_type == "mra" and not torch.cuda.is_available():
        raise UsageError("MRA's attention needs a GPU: without one it silently returns zeros")
    saved = getattr(model.config, "vcc", None)
    model = restored(unwrap(model))
    plain = saved is None and bool(choice.record) if choice.vcc is None else not choice.vcc
    if plain and choice.settings:
        raise UsageError(f"{name} was trained without VCC: {choice.settings_given} needs --vcc true")
    if plain:
        check_positions(model, length)
        return in_one_sequence(model) if auto_class is AutoModelForMultipleChoice else model
    known = [family.model_type for family in FAMILIES]
    if model.config.model_type not in known:
        raise UsageError(
            f"VCC cannot wrap {type(model).__name__}, only models of these types: {', '.join(known)}; "
            "--vcc false runs it as it is"
        )
    usual = compression or paper_compression(length)
    base = VccConfig.from_dict(saved) if saved else VccConfig(usual.scales, usual.budget)
    if base.dense_below == "auto" and not (saved and choice.record):
        base = replace(base, dense_below=0)  # measure VCC itself: inputs run dense only on request
    return wrap(model, replace(base, **choice.settings), max_length=needed_positions(model, length))


def restored(model: PreTrainedModel) -> PreTrainedModel:
    """Apply the parts of a configuration that its class does not handle; without them the model would differ."""
    for key, (module, function) in AFTER_LOAD.items():
        if getattr(model.config, key, None) is not None:
            model = getattr(research(module, f"a model saved with {key}"), function)(model)
    return model


def compile_model(model: PreTrainedModel) -> None:
    """Compile a model in place, wrapped or not; saved files do not change."""
    if isinstance(model, Wrapped):
        compile_ours(model, whole=False)
    else:
        model.compile(dynamic=True)


def described(model: PreTrainedModel) -> str:
    """A line on whether VCC is on, and with which settings."""
    if not isinstance(model, Wrapped):
        return f"VCC is off: untouched {type(model).__name__}"
    vcc, layers = model.vcc, model.config.num_hidden_layers
    dense = "every input is compressed" if vcc.dense_below == 0 else f"dense_below {vcc.dense_below}"
    return (
        f"VCC is on: scales {vcc.scales}, budget {vcc.budget}, {vcc.window_layers} of {layers} layers on windows of "
        f"{vcc.window} tokens, score {vcc.score}, {dense}"
    )


def vip_name(model: PreTrainedModel) -> str | None:
    """The argument that names the model's VIPs; None if it has none."""
    if isinstance(model, Wrapped):
        return "vip_mask"
    return "global_attention_mask" if model.config.model_type in ("led", "longformer") else None


def padding(model: PreTrainedModel, length: int) -> int:
    """Batches are padded to a multiple of this. BigBird's output depends on padding, and after one short batch it keeps
    using full attention, so it always gets the full length.
    """
    return length if model.config.model_type in ("big_bird", "bigbird_pegasus") else 1


def needed_positions(model: PreTrainedModel, length: int) -> int | None:
    """`length` if the model has fewer learned positions; None if there is nothing to extend."""
    known = positions(model)
    return length if known is not None and known < length else None


def check_positions(model: PreTrainedModel, length: int) -> None:
    known = positions(model)
    if known is not None and known < length:
        raise UsageError(
            f"--length {length}: {type(model).__name__} has {known} positions; give --length {known}, or --vcc true"
        )


def positions(model: PreTrainedModel) -> int | None:
    """The number of positions of the model; None if they are relative."""
    config, family = model.config, find_family(model.config.model_type)
    kind = OTHERS_POSITIONS.get(config.model_type, "table") if family is None else family.positions
    number = getattr(config, "max_encoder_position_embeddings", getattr(config, "max_position_embeddings", None))
    if kind == "relative" or number is None or number <= 0:
        return None
    return number - (config.pad_token_id + 1 if kind == "after padding" else 0)
