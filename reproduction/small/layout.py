"""The paths of the small scale: jobs write them, steps wait for them, reports read them."""

from dataclasses import dataclass
from pathlib import Path

from reproduction.small.settings import Small

CURVE = "curve.json"  # written last: it exists when the training is done
OWN = "own"  # the setting that a model was tuned with


@dataclass(frozen=True)
class SmallLayout:
    """All paths of a run at small scale, and its settings."""

    packed: Path  # weights, text and task data
    out: Path
    small: Small

    def start(self) -> Path:
        return self.out / "start"

    def tokens(self, split: str) -> Path:
        return self.out / "tokens" / split

    def pretrained(self, model: str) -> Path:
        return self.out / "pretrained" / model

    def answering(self, model: str) -> Path:
        return self.out / "answering" / model

    def tuned(self, model: str, task: str) -> Path:
        return self.out / "tuned" / f"{model}-{task}"

    def scores(self, model: str, task: str, setting: str = OWN, length: int | None = None) -> Path:
        end = f"-{length}" if length else ""
        return self.out / "scores" / f"{model}-{task}-{setting}{end}.json"

    def times(self, model: str, setting: str = OWN) -> Path:
        return self.out / "times" / f"{model}-{setting}.json"
