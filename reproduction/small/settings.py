"""The settings of the small scale."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from vcc.errors import UsageError
from vcc.files import write_whole
from vcc.train.record import FREE, free

FILE = "settings.json"
PARAGRAPHS = 64  # short ones per step
TABLE1 = ("squad_haystack", "hotpotqa", "fairytale_choices", "cuad", "fairytaleqa")  # tasks of table 1
MAY_BE_ZERO = (
    "loaders",
    "seed",
    "start_steps",
    "prestart_steps",
    "pretrain_steps",
    "answer_steps",
    "reader",
    "compile",
    "time_forward",
    "t5_steps",
    "decoder_steps",
)


@dataclass(frozen=True)
class Small:
    """Options of the small scale. The defaults are for one H200 and about twenty minutes in all."""

    models: Annotated[tuple[str, ...], "models to compare (default: the table's)", FREE] = ()
    tasks: Annotated[tuple[str, ...], "tasks to train and test on", FREE] = TABLE1
    length: Annotated[int, "tokens that the long models read"] = 4096
    short: Annotated[int, "tokens that the truncated one reads"] = 512
    start_steps: Annotated[int, "steps on short rows for the common checkpoint"] = 300
    prestart_steps: Annotated[int, "steps on short rows for the pre-norm checkpoint, from random weights"] = 3000
    pretrain_steps: Annotated[int, "pretraining steps on long rows, per model"] = 300
    pretrain_seconds: Annotated[float | None, "GPU seconds of each model's pretraining, instead of steps"] = None
    reader: Annotated[bool, "learn to answer once, on dense paragraphs, and start every model there"] = False
    answer_steps: Annotated[int, "steps on 64 short paragraphs to train the new head, per model or reader"] = 600
    tune_steps: Annotated[int, "steps on each task"] = 500
    tune_seconds: Annotated[float | None, "GPU seconds of each model on each task, instead of steps"] = None
    batch: Annotated[int, "long sequences per step"] = 64
    at_once: Annotated[int, "sequences per forward pass", FREE] = 64
    compile: Annotated[bool, "compile the models; the first step takes a minute", FREE] = True
    time_forward: Annotated[bool, "time forward passes too, not only training", FREE] = True
    mask_window: Annotated[int | None, "put masks together in windows of this many tokens (default: scattered)"] = None
    mask_density: Annotated[float, "share of such a window that is masked"] = 0.3
    prestart_rate: Annotated[float, "peak learning rate of the pre-norm checkpoint"] = 1e-3
    pretrain_rate: Annotated[float, "peak learning rate of pretraining"] = 2e-4
    tune_rate: Annotated[float, "peak learning rate on a task"] = 1e-4
    rates: Annotated[tuple[float, ...], "learning rates of which each model has the best one, on each task", FREE] = ()
    examples: Annotated[int, "validation examples of each task"] = 400
    t5_steps: Annotated[int, "steps of span corruption for the common T5"] = 2000
    t5_seconds: Annotated[float | None, "seconds of span corruption, instead of steps"] = None
    t5_batch: Annotated[int, "short rows per step of span corruption"] = 256
    t5_rate: Annotated[float, "peak learning rate of span corruption, for a weight of size 1"] = 1e-2
    write_rate: Annotated[float, "peak learning rate on a task with text to write, likewise"] = 5e-3
    written: Annotated[int, "tokens of a text to write at most, in training and when scored"] = 128
    decoder_steps: Annotated[int, "steps on short rows for the common decoder, from random weights"] = 2000
    suffix: Annotated[int, "tokens that a decoder predicts behind its prefix"] = 512
    cell_seconds: Annotated[float, "seconds of each training of the experiment tasks", FREE] = 30.0
    longest: Annotated[int, "most tokens of a document in the experiment tasks", FREE] = 65_536
    together: Annotated[int, "concurrent trainings on the device", FREE] = 2
    device: Annotated[Literal["cuda", "cpu"], "device; cuda computes in bf16", FREE] = "cuda"
    loaders: Annotated[int, "processes that prepare batches, per training", FREE] = 4
    seed: Annotated[int, "random seed"] = 0
    seeds: Annotated[int, "repeat every training after the common checkpoint or reader with this many seeds", FREE] = 1

    def __post_init__(self) -> None:
        for name in ("models", "tasks", "rates"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON has lists only
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in MAY_BE_ZERO else 1
            if isinstance(value, int) and value < least:
                raise UsageError(f"--{field.name.replace('_', '-')} is {value}: it must be at least {least}")
        for name in ("pretrain_seconds", "tune_seconds", "cell_seconds", "t5_seconds"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise UsageError(f"--{name.replace('_', '-')} is {seconds}: it must be greater than 0")
        if any(not rate > 0 for rate in self.rates) or len(set(self.rates)) < len(self.rates):
            shown = ",".join(f"{rate:g}" for rate in self.rates)
            raise UsageError(f"--rates {shown}: they must be greater than 0, and none may be named twice")
        if self.batch % self.at_once:
            raise UsageError(f"--batch {self.batch} must be a multiple of --at-once {self.at_once}")


def settle(folder: Path, settings: Small) -> None:
    """Save the settings of a folder at its first command; later ones with other settings raise."""
    file = folder / FILE
    now = {name: value for name, value in asdict(settings).items() if name not in free(settings)}
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(now, indent=1))
        return
    before: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    # a setting that did not exist then had its default
    old = {name: before.get(name, getattr(Small, name)) for name in now}
    changed = {name: (old[name], value) for name, value in now.items() if old[name] != value}
    if changed:
        told = ", ".join(f"{name} {old} then, {new} now" for name, (old, new) in changed.items())
        raise UsageError(f"{folder} was started with other settings: {told}; use another --out, or the same settings")
