"""The settings of the small scale."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from vcc.errors import UsageError
from vcc.files import write_whole
from vcc.train.record import FREE, free

FILE = "settings.json"


@dataclass(frozen=True)
class Small:
    """Options of the small scale. The defaults are for one H200 and about twenty minutes in all."""

    models: Annotated[tuple[str, ...], "models to compare (default: the table's)", FREE] = ()
    tasks: Annotated[tuple[str, ...], "tasks to train and test on", FREE] = ("squad_haystack", "cuad", "fairytaleqa")
    length: Annotated[int, "tokens that the long models read"] = 4096
    short: Annotated[int, "tokens that the truncated one reads"] = 512
    start_steps: Annotated[int, "steps on short rows for the common checkpoint"] = 500
    pretrain_steps: Annotated[int, "pretraining steps on long rows, per model"] = 300
    answer_steps: Annotated[int, "steps on 64 short paragraphs, per model, to train the new head"] = 300
    tune_steps: Annotated[int, "steps on each task"] = 200
    batch: Annotated[int, "long sequences per step"] = 16
    at_once: Annotated[int, "sequences per forward pass", FREE] = 8
    pretrain_rate: Annotated[float, "peak learning rate of pretraining"] = 2e-4
    tune_rate: Annotated[float, "peak learning rate on a task"] = 1e-4
    examples: Annotated[int, "validation examples of each task"] = 400
    cell_seconds: Annotated[float, "seconds of each training of the experiment tasks", FREE] = 12.0
    longest: Annotated[int, "most tokens of a document in the experiment tasks", FREE] = 65_536
    together: Annotated[int, "concurrent trainings on the device", FREE] = 6
    device: Annotated[Literal["cuda", "cpu"], "device; cuda computes in bf16", FREE] = "cuda"
    loaders: Annotated[int, "processes that prepare batches, per training", FREE] = 2
    seed: Annotated[int, "random seed"] = 0

    def __post_init__(self) -> None:
        for name in ("models", "tasks"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON has lists only
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("loaders", "seed", "start_steps", "pretrain_steps", "answer_steps") else 1
            if isinstance(value, int) and value < least:
                raise UsageError(f"--{field.name.replace('_', '-')} is {value}: it must be at least {least}")
        if not self.cell_seconds > 0:
            raise UsageError(f"--cell-seconds is {self.cell_seconds}: it must be greater than 0")
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
    changed = {name: (before.get(name), value) for name, value in now.items() if before.get(name) != value}
    if changed:
        told = ", ".join(f"{name} {old} then, {new} now" for name, (old, new) in changed.items())
        raise UsageError(f"{folder} was started with other settings: {told}; use another --out, or the same settings")
