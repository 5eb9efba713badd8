"""The Hugging Face Trainer with three changes: checkpoints, data order and loss normalisation.

The order is that of `draws.py`. The loss is the sum over the items of the global batch divided by their number, so
neither gradient accumulation nor the number of processes changes it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.utils.data import Dataset
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from vcc.train.checkpoint import CheckpointError, keep_newest, write_checkpoint
from vcc.train.clock import Clock
from vcc.train.draws import Stream
from vcc.train.processes import from_first, gathered, rank, world_size
from vcc.train.shard import shard
from vcc.train.share import Share, of_all_processes
from vcc.train.state import load_state, random_state, save_state, set_random_state

Batch = dict[str, Tensor]
STATE = "training_state"
FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Objective(Protocol):
    """An objective: how items become a batch, and the loss of a batch."""

    def collate(self, items: Sequence[Any]) -> Batch: ...

    def count(self, batch: Batch) -> Tensor:
        """The number of items in the loss."""
        ...

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The sum of the loss over these items."""
        ...


class VccTrainer(Trainer):
    """See the module's docstring. `run` is the configuration that a checkpoint must have to be resumed."""

    loss_is_scaled_for_ga = True  # `compute_loss` divides by the items of all accumulated batches
    objective: Objective
    model: Any  # attributes of the parent, initially None
    optimizer: Any
    lr_scheduler: Any
    train_dataset: Any

    def __init__(
        self,
        model: PreTrainedModel,
        args: TrainingArguments,
        objective: Objective,
        data: Dataset[Any],
        run: Mapping[str, Any],
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        keep: int = 2,
        head_lr_multiplier: float = 1.0,
        minutes: float | None = None,
        sharded: bool = False,
        evaluation: Callable[[PreTrainedModel], dict[str, float]] | None = None,
    ) -> None:
        self.objective, self.run, self.keep, self.evaluation = objective, run, keep, evaluation
        self.head_lr_multiplier = head_lr_multiplier
        self.clock = Clock(minutes)
        self.tokens_seen: Tensor | int = 0  # by this process since `take_tokens`
        self.row_length = 0  # tokens per row of the current batch
        self.share = self.share_logged = Share()  # of the inputs that this process has trained on
        super().__init__(
            model,
            args,
            data_collator=objective.collate,
            train_dataset=data,
            eval_dataset=data,  # only its presence matters: `evaluation` has its own examples
            processing_class=tokenizer,
            callbacks=[Flow(self.clock, len(data))],  # type: ignore[arg-type]
        )
        self.remove_callback(PrinterCallback)
        if sharded:
            shard(model)
            self.is_distributed_loading_by_transformers = True  # it handles placement and reduction itself

    # --- order and counting ---------------------------------------------------------------------------------

    def _get_train_sampler(self, train_dataset: Any = None) -> Stream:
        draws = self.args.max_steps * self.get_total_train_batch_size(self.args)
        return Stream(len(self.train_dataset), draws, self.args.seed)

    def _get_num_items_in_batch(self, batch_samples: list[Batch], device: torch.device) -> Tensor:
        count = torch.stack([self.objective.count(batch).to(device) for batch in batch_samples]).sum()
        return self.accelerator.gather(count).sum()

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        assert num_items_in_batch is not None
        self.row_length = inputs["input_ids"].shape[-1]
        self.tokens_seen = self.tokens_seen + inputs["attention_mask"].sum()  # on the device, without waiting
        before = Share.of(self.model)
        loss = self.objective.loss(model, inputs)
        self.share += Share.of(self.model) - before
        # Data parallelism averages gradients over processes; we need the sum.
        return loss * (world_size() / num_items_in_batch)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds the percentage of inputs compressed since the last point of the loss curve."""
        new, self.share_logged = self.share - self.share_logged, self.share
        if "loss" in logs and new.inputs:
            logs = {**logs, "compressed": new.percent}
        super().log(logs, start_time)

    def take_tokens(self) -> int:
        """Tokens of the inputs read since the last call, over all processes if each reads as many."""
        seen, self.tokens_seen = int(self.tokens_seen) * world_size(), 0
        return seen

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        assert self.evaluation is not None
        metrics = {f"eval_{name}": value for name, value in self.evaluation(self.model).items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    # --- optimizer ------------------------------------------------------------------------------------------

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        if self.optimizer is None:
            model = self.model if model is None else model
            decayed, heads = set(self.get_decay_parameter_names(model)), head_names(self.model)
            groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    groups.setdefault((name in decayed, name in heads), []).append(parameter)
            self.optimizer = torch.optim.AdamW(
                [
                    {
                        "params": parameters,
                        "weight_decay": self.args.weight_decay if decay else 0.0,
                        "lr": self.args.learning_rate * (self.head_lr_multiplier if head else 1.0),
                    }
                    for (decay, head), parameters in groups.items()
                ],
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                eps=self.args.adam_epsilon,
            )
        return self.optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LambdaLR:
        """Linear warm-up, then linear decay to 0 at the last step, or at the last minute if that comes first."""
        if self.lr_scheduler is None:
            warmup = self.args.get_warmup_steps(num_training_steps)

            def factor(step: int) -> float:
                if step < warmup:
                    return (step + 1) / (warmup + 1)
                left = (num_training_steps - step) / max(1, num_training_steps - warmup)
                return max(0.0, min(left, 1 - self.clock.share))

            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer or self.optimizer, factor)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    # --- saving ---------------------------------------------------------------------------------------------

    def _save_checkpoint(self, model: nn.Module, trial: Any = None) -> None:
        """All processes gather, the first one writes, and all learn whether it succeeded."""
        self.store_flos()
        weights = get_model_state_dict(model, options=FULL)
        scaler = self.accelerator.scaler
        state = {
            "optimizer": get_optimizer_state_dict(model, self._torch_optimizer(), options=FULL),
            "scheduler": self.lr_scheduler.state_dict(),
            "scaler": scaler.state_dict() if scaler is not None else None,
            "random": gathered(random_state()),
            "seconds": self.clock.seconds,
            "share": asdict(of_all_processes(self.share)),
        }

        def fill(folder: Path) -> None:
            plain = self.accelerator.unwrap_model(model)
            plain.save_pretrained(folder, state_dict=weights, save_original_format=False)
            if self.processing_class is not None:
                self.processing_class.save_pretrained(folder)
            save_state(folder, STATE, state)
            self.state.save_to_json(str(folder / "trainer_state.json"))

        failure: str | None = None
        if self.is_world_process_zero():
            root = Path(str(self.args.output_dir))
            try:
                write_checkpoint(root, self.state.global_step, self.run, fill)
                keep_newest(root, self.keep)
            except (CheckpointError, OSError) as error:
                failure = str(error)
        if failure := from_first(failure):
            raise CheckpointError(failure)

    # --- resuming -------------------------------------------------------------------------------------------

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        weights: dict[str, Any] = {}
        for file in sorted(Path(resume_from_checkpoint).glob("model*.safetensors")):
            weights |= load_file(file)
        for tied, source in self.model.all_tied_weights_keys.items():
            if tied not in weights:
                weights[tied] = weights[source]
        whole = self.model if model is None else model
        set_model_state_dict(whole, weights, options=StateDictOptions(full_state_dict=True))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        state = load_state(Path(checkpoint), STATE)
        options = StateDictOptions(full_state_dict=True)
        set_optimizer_state_dict(self.model_wrapped, self._torch_optimizer(), state["optimizer"], options=options)
        self.lr_scheduler.load_state_dict(state["scheduler"])
        self.clock.seconds_before = state["seconds"]
        if rank() == 0:
            self.share = self.share_logged = Share(**state.get("share", {}))

    def _load_scaler(self, checkpoint: str | None) -> None:
        if checkpoint is not None and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(load_state(Path(checkpoint), STATE)["scaler"])

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            states = load_state(Path(checkpoint), STATE)["random"]
            set_random_state(states[rank() % len(states)])

    def _torch_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer inside Accelerate's wrapper."""
        return self.optimizer.optimizer


def head_names(model: PreTrainedModel) -> set[str]:
    """Names of the parameters outside the base model: the head, which is often new."""
    if model.base_model is model:
        return set()
    inside = {id(parameter) for parameter in model.base_model.parameters()}
    return {name for name, parameter in model.named_parameters() if id(parameter) not in inside}


class Flow(TrainerCallback):
    """Log the loss at every checkpoint, count epochs in examples, and stop when the time is up."""

    def __init__(self, clock: Clock, examples: int) -> None:
        self.clock, self.examples = clock, examples

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.clock.started = time.monotonic()
        if rank() > 0:
            set_seed(args.seed + rank())  # else all processes would use the same dropout and the same random cuts

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        draws = state.global_step * args.per_device_train_batch_size * args.gradient_accumulation_steps * world_size()
        state.epoch = draws / self.examples
        if self.clock.tick():
            control.should_training_stop = control.should_save = True
        if control.should_save:
            control.should_log = True  # else resuming would change the loss average that spans the checkpoint
