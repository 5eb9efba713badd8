"""`QaSettings`: how a model answers questions, saved under one key of its configuration."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any

from vcc.config import require, whole
from vcc.errors import ModelError
from vcc.qa.calibration import Calibration

KEY = "qa"  # of a Hugging Face configuration


@dataclass(frozen=True)
class QaSettings:
    """How spans are found and become answers."""

    calibration: Calibration = Calibration()
    """Calibration of the scores."""
    clause_calibration: Calibration | None = None
    """The same for the 41 questions of `vcc review`, if the model was trained on them; None: like the others."""
    threshold: float = 0.5
    """Answers with a lower score are shown as doubtful."""
    doubt: float = 0.1
    """Answers with a lower score are not shown: there is very likely no answer."""
    framed_windows: bool = False
    """Whether each window of a document is framed by special tokens, [CLS] window [SEP]."""
    second_looks: int = 0
    """Maximum second looks per question."""
    longest_answer: int = 256
    """Tokens."""
    candidates: int = 20
    """Candidate spans of a document, or of a passage in the second look."""
    nodes: int = 40
    """Best nodes of the tree that may lead to passages."""
    matches: int = 40
    """Pieces that match the question's words best and may lead to passages; 0: none."""

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
        return parsed(json.dumps({} if kept is None else kept))
    except (TypeError, ValueError) as error:
        raise ModelError(f"the model's configuration has settings that cannot be used: {error}") from error


@lru_cache(maxsize=8)
def parsed(kept: str) -> QaSettings:
    """The settings in JSON. A question reads them several times, and checking them takes longer than finding them
    here."""
    return QaSettings.from_dict(json.loads(kept))


def keep_settings(config: Any, settings: QaSettings) -> None:
    """Store the settings in a Hugging Face configuration, which is saved with the model."""
    setattr(config, KEY, asdict(settings))
