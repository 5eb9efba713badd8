"""Training: options, the run, and error messages."""

import contextlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import torch
import transformers
from torch.utils.data import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments

from vcc.errors import UsageError
from vcc.files import write_whole
from vcc.train.busy import Busy
from vcc.train.checkpoint import CheckpointError, Resumable, checkpoints, lock, newest_good, remove_leftovers, set_aside
from vcc.train.memory import did_not_fit, memory_advice
from vcc.train.models import compile_model
from vcc.train.processes import from_first, local_processes, rank, world_size
from vcc.train.record import FREE, RunRecord, free
from vcc.train.shard import check_launch
from vcc.train.share import of_all_processes
from vcc.train.trainer import Objective, VccTrainer
from vcc.train.watch import Board, Progress, say

MOST_STEPS = 10**12
MOST_WORKERS = 8
Precision = Literal["auto", "fp32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options shared by a request and a settled plan. `FREE` options may differ when a run resumes."""

    out: Annotated[Path, "run folder, for checkpoints, logs and configuration", FREE]
    resume: Annotated[bool, "resume from the newest valid checkpoint in --out", FREE] = False
    minutes: Annotated[float | None, "training time; the learning rate then reaches 0"] = None
    gradient_accumulation: Annotated[int, "split each batch into this many parts to save memory; same result", FREE] = 1
    head_lr_multiplier: Annotated[float, "learning rate of the new head, as a multiple of --lr"] = 1.0
    clip: Annotated[float, "maximum gradient norm; 0: no clipping"] = 1.0
    gradient_checkpointing: Annotated[bool, "recompute activations instead of storing them"] = False
    seed: Annotated[int, "random seed of new weights, order, dropout and masks"] = 0
    save_every: Annotated[int, "steps between checkpoints", FREE] = 500
    keep: Annotated[int, "checkpoints to keep", FREE] = 2
    log_every: Annotated[int, "steps between points of the loss curve", FREE] = 10
    device: Annotated[Literal["auto", "cpu"], "auto: the GPU if there is one", FREE] = "auto"
    fsdp: Annotated[bool, "shard the model over processes (FSDP2) instead of replicating it (DDP)", FREE] = False


@dataclass(frozen=True, kw_only=True)
class Training(RunOptions):
    """How to train. Defaults are the task's values, from the paper."""

    steps: Annotated[int | None, "optimizer steps; instead of --epochs"] = None
    epochs: Annotated[float | None, "passes over the training examples"] = None
    batch_size: Annotated[int | None, "examples per optimizer step, over all devices"] = None
    lr: Annotated[float | None, "peak learning rate; it decays linearly to 0"] = None
    warmup: Annotated[int | None, "warm-up steps (default: the task's, even in a shorter run)"] = None
    weight_decay: Annotated[float | None, "AdamW's weight decay, of matrices only"] = None
    precision: Annotated[Precision, "auto: the task's on a GPU, fp32 on a CPU"] = "auto"
    workers: Annotated[
        int | None, "processes that prepare batches; 0: in the training process (default: 0, on a GPU up to 8)", FREE
    ] = None
    compile: Annotated[
        bool | None,
        "compile the model; the first batch of each length takes a minute (default: when an encoder with VCC is "
        "pretrained on one GPU)",
        FREE,
    ] = None

    def __post_init__(self) -> None:
        for name in (
            "steps",
            "epochs",
            "minutes",
            "batch_size",
            "gradient_accumulation",
            "lr",
            "save_every",
            "keep",
            "log_every",
            "head_lr_multiplier",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"--{name.replace('_', '-')} is {value}: it must be greater than 0, and finite")
        for name in ("warmup", "weight_decay", "clip", "workers", "seed"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"--{name.replace('_', '-')} is {value}: it must be finite and not negative")
        if self.seed >= 2**32:
            raise UsageError(f"--seed is {self.seed}: it must be less than 2^32, {2**32}")
        if self.steps is not None and self.epochs is not None:
            raise UsageError(f"--steps {self.steps} and --epochs {self.epochs}: give only one of them")


@dataclass(frozen=True, kw_only=True)
class Settled(RunOptions):
    """A training plan with every choice made."""

    steps: int
    batch_size: int
    lr: float
    warmup: int
    weight_decay: float
    precision: Literal["fp32", "bf16", "fp16"]
    workers: Annotated[int, "processes that prepare batches", FREE]
    compile: Annotated[bool, "whether the model is compiled", FREE]

    @property
    def at_once(self) -> int:
        """Examples per forward pass, over all devices."""
        return max(1, self.batch_size // self.gradient_accumulation)


class Defaults(Protocol):
    """The defaults of a task."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def epoch_count(self) -> int: ...
    @property
    def warmup_steps(self) -> int: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def precision(self) -> Literal["fp16", "bf16"]: ...


def settle(
    training: Training, defaults: Defaults, examples: int, steps: int | None = None, one_length: bool = False
) -> Settled:
    """Settle every choice. `steps` is the default length. `one_length`: all batches have the same shape, so that
    compiling pays."""
    if examples == 0:
        raise UsageError("there are no training examples")
    batch = training.batch_size or defaults.batch_size
    if training.steps is not None or training.epochs is not None or steps is None:
        steps = training.steps or math.ceil((training.epochs or defaults.epoch_count) * examples / batch)
    if steps > MOST_STEPS:
        raise UsageError(f"{steps:.3g} steps are more than {MOST_STEPS:,}: give fewer --steps or --epochs")
    warmup = training.warmup if training.warmup is not None else defaults.warmup_steps
    if warmup >= steps:
        say(f"the warm-up of {warmup:,} steps is longer than the run, of {steps:,}: --warmup sets another")
    on_gpu = training.device == "auto" and torch.cuda.is_available()
    return Settled(
        **{field.name: getattr(training, field.name) for field in fields(RunOptions)},
        batch_size=batch,
        steps=steps,
        lr=training.lr or defaults.learning_rate,
        warmup=warmup,
        weight_decay=training.weight_decay if training.weight_decay is not None else defaults.weight_decay,
        precision=training.precision if training.precision != "auto" else defaults.precision if on_gpu else "fp32",
        workers=usual_workers(on_gpu) if training.workers is None else training.workers,
        compile=on_gpu and one_length and world_size() == 1 if training.compile is None else training.compile,
    )


def usual_workers(on_gpu: bool) -> int:
    """A GPU must not wait for its batches; a CPU has no cores to spare."""
    return min(MOST_WORKERS, cores() // (2 * local_processes())) if on_gpu else 0


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fit(
    training: Settled,
    record: RunRecord,
    model: PreTrainedModel,
    objective: Objective,
    data: Dataset[Any],
    tokenizer: PreTrainedTokenizerBase | None,
    length: int,
    evaluate: Callable[[PreTrainedModel], dict[str, float]] | None = None,
    eval_every: int | None = None,
    eval_first: bool = False,
) -> Path:
    """Train `model` on `data` and return the last checkpoint. `evaluate` is called every `eval_every` steps, and with
    `eval_first` before the first. Only a run with the same record and training options can resume from a checkpoint.
    """
    everything = record.to_dict() | asdict(training)
    chosen = {name: value for name, value in everything.items() if name not in free(record) | free(training)}
    check_launch(training.fsdp)
    say(planned(training))
    arguments = training_arguments(training, eval_every)
    if training.compile:
        compile_model(model)
    trainer = VccTrainer(
        model,
        arguments,
        objective,
        data,
        chosen,
        tokenizer=tokenizer,
        keep=training.keep,
        head_lr_multiplier=training.head_lr_multiplier,
        minutes=training.minutes,
        sharded=training.fsdp,
        evaluation=evaluate,
    )
    progress = Progress(trainer.take_tokens, trainer.clock)
    if rank() == 0:
        trainer.add_callback(progress)
        trainer.add_callback(Board(training.out / "tensorboard"))
        if arguments.device.type == "cuda":
            trainer.add_callback(Busy(say))
    with contextlib.ExitStack() as stack:
        stack.callback(progress.close)
        if rank() == 0:
            stack.enter_context(lock(training.out))
        start = find_start(training, chosen)
        if rank() == 0:
            place = {"processes": world_size(), "torch": torch.__version__, "transformers": transformers.__version__}
            write_record(training.out, everything | place)
        arguments.eval_on_start = eval_first and start is None
        with memory_advice(lambda: advice(training, trainer.row_length or length)):
            trainer.train(resume_from_checkpoint=str(start) if start else None)
        share = of_all_processes(trainer.share)
        if rank() == 0 and share.inputs:
            say(str(share))
            write_record(training.out, everything | place | {"compressed": asdict(share)})
    last = training.out / f"checkpoint-{trainer.state.global_step}"
    say(f"done: {trainer.state.global_step} steps; the model is in {last}")
    return last


def planned(training: Settled) -> str:
    """Print the settled plan before training."""
    until = f" or {training.minutes:g} minutes" if training.minutes is not None else ""
    return (
        f"training: {training.steps:,} steps{until} of {training.batch_size} examples, learning rate {training.lr:g} "
        f"after a warm-up of {training.warmup:,} steps, weight decay {training.weight_decay:g}, {training.precision}, "
        f"seed {training.seed}{', compiled' if training.compile else ''}"
    )


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write all settings and, at the end, the share of compressed inputs."""
    write_whole(folder / "run.json", json.dumps(record, indent=1, default=str))


def find_start(training: Settled, chosen: Mapping[str, Any]) -> Path | None:
    """The checkpoint to resume from; the first process searches and reports."""

    def look() -> tuple[Resumable | None, str | None]:
        remove_leftovers(training.out)
        try:
            if training.resume:
                return newest_good(training.out, chosen), None
            if present := checkpoints(training.out):
                return None, f"{present[0]} already exists: give --resume to continue from it, or another --out"
            return None, None
        except CheckpointError as error:
            return None, str(error)

    found, problem = from_first(look() if rank() == 0 else (None, None))
    if problem:
        raise UsageError(problem)
    if found is None:
        return None
    for line in found.report():
        say(line)
    if rank() == 0:
        for path, _ in found.rejected:
            say(f"kept for inspection: {set_aside(path)}")
    return found.path


def training_arguments(training: Settled, eval_every: int | None = None) -> TrainingArguments:
    """The plan as arguments of the Hugging Face Trainer."""
    pieces = training.gradient_accumulation * world_size()
    if training.batch_size % pieces:
        raise UsageError(
            f"--batch-size {training.batch_size} must divide into {pieces} equal pieces: "
            f"{training.gradient_accumulation} of gradient accumulation times {world_size()} processes"
        )
    on_cpu = training.device == "cpu" or not torch.cuda.is_available()
    if on_cpu and training.precision == "fp16":
        raise UsageError("--precision fp16 needs a GPU: use fp32 or bf16 on a CPU")
    return TrainingArguments(
        output_dir=str(training.out),
        max_steps=training.steps,
        num_train_epochs=1,
        per_device_train_batch_size=training.batch_size // pieces,
        gradient_accumulation_steps=training.gradient_accumulation,
        learning_rate=training.lr,
        warmup_steps=training.warmup,
        weight_decay=training.weight_decay,
        max_grad_norm=training.clip,
        fp16=training.precision == "fp16",
        bf16=training.precision == "bf16",
        gradient_checkpointing=training.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if training.gradient_checkpointing else None,
        seed=training.seed,
        save_strategy="steps",
        save_steps=training.save_every,
        eval_strategy="steps" if eval_every else "no",
        eval_steps=eval_every,
        logging_strategy="steps",
        logging_steps=training.log_every,
        logging_nan_inf_filter=False,
        dataloader_num_workers=training.workers,
        dataloader_pin_memory=not on_cpu,
        remove_unused_columns=False,
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and world_size() > 1 else None,
        report_to="none",
        disable_tqdm=True,
    )


def advice(training: Settled, length: int) -> str:
    pieces = training.gradient_accumulation
    each = max(1, training.batch_size // (pieces * world_size()))
    tries = []
    if each > 1:
        tries.append(f"--gradient-accumulation {2 * pieces} (the same result, {max(1, each // 2)} at a time)")
    if not training.gradient_checkpointing:
        tries.append("--gradient-checkpointing")
    if training.precision == "fp32" and training.device == "auto":
        tries.append("--precision bf16")
    if not training.fsdp:
        tries.append("--fsdp on several devices")
    return did_not_fit(length, each, tries)
