"""The record of a run: runs with equal records and options compute the same, and one can resume another."""

from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, get_args, get_type_hints


class Free:
    """Marks a field that does not change the result: where a run computes, how it is logged."""


FREE = Free()


def free(options: Any) -> set[str]:
    """The names of the fields of a dataclass that are marked `FREE`."""
    hints = get_type_hints(type(options), include_extras=True)
    return {one.name for one in fields(options) if FREE in get_args(hints[one.name])[1:]}


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The model and data of a run. Every recipe adds fields."""

    recipe: str
    model: str
    fresh: bool
    vcc: dict[str, Any] | None  # the settings of a wrapped model
    length: int
    data: str  # its digest
    source: Annotated[str | None, FREE]  # where it came from

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class FinetuneRecord(RunRecord):
    """A task; its options are saved as `task_NAME`."""

    recipe: str = "finetune"
    task: str
    options: dict[str, Any] = field(default_factory=dict)
    head: str
    max_choices: int | None
    examples: int
    teach_opening: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        options = record.pop("options")
        return record | {f"task_{name}": value for name, value in options.items()}


@dataclass(frozen=True, kw_only=True)
class PretrainRecord(RunRecord):
    """A corpus and its masking."""

    recipe: str = "pretrain"
    preset: str | None
    hiding: dict[str, Any]
    tokens: int
    documents: int
    held_out: int | None
    tokens_per_byte: float
