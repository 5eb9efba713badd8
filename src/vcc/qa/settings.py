"""`QaSettings`: how a model answers questions. They are saved with it, under one key of its configuration."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from vcc.config import require, whole
from vcc.errors import ModelError
from vcc.qa.calibration import Calibration

KEY = "qa"  # of a Hugging Face configuration


@dataclass(frozen=True)
class QaSettings:
    """What turns spans into answers, and how they are found."""

    calibration: Calibration = Calibration()
    """How likely an answer is right."""
    clause_calibration: Calibration | None = None
    """The same for the 41 questions of `vcc review`, which the model may know by heart; None: as the others."""
    threshold: float = 0.5
    """An answer that is less likely to be right than this is shown as doubtful."""
    doubt: float = 0.1
    """What is less likely than this is not shown at all: the model is sure that there is no answer."""
    framed_windows: bool = False
    """Whether each window of a document stands between special tokens, [CLS] window [SEP]."""
    second_looks: int = 0
    """Passages of a document, at most, that are read again with each question."""
    longest_answer: int = 256
    """Tokens."""
    candidates: int = 20
    """Spans of a document, or of a passage that is read again, that compete for a question."""
    nodes: int = 40
    """Best nodes of the tree that may point to passages."""
    matches: int = 40
    """Pieces of the document that match the question's words best, and may point to passages; 0: none."""

    def __post_init__(self) -> None:
        for name in ("calibration", "clause_calibration"):
            if isinstance(given := getattr(self, name), Mapping):  # as JSON has it
                object.__setattr__(self, name, Calibration(**given))
        for name in ("threshold", "doubt"):
            value = getattr(self, name)
            require(number(value) and 0 <= value <= 1, name, value, "a probability, from 0 to 1")
        require(isinstance(self.framed_windows, bool), "framed_windows", self.framed_windows, "true or false")
        for name in ("second_looks", "matches"):
            require(whole(getattr(self, name), 0), name, getattr(self, name), "a whole number, at least 0")
        for name in ("longest_answer", "candidates", "nodes"):
            require(whole(getattr(self, name), 1), name, getattr(self, name), "a whole number, at least 1")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "QaSettings":
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        require(not unknown, KEY, unknown, f"settings among {sorted(known)}")
        return cls(**values)


def number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def load_settings(config: Any) -> QaSettings:
    """The settings in a Hugging Face configuration; the defaults where it has none."""
    kept = getattr(config, KEY, None)
    try:
        return QaSettings.from_dict({} if kept is None else kept)
    except (TypeError, ValueError) as error:
        raise ModelError(f"the model's configuration holds settings that cannot be used: {error}") from error


def keep_settings(config: Any, settings: QaSettings) -> None:
    """Put the settings into a Hugging Face configuration, to be saved with the model."""
    setattr(config, KEY, asdict(settings))
