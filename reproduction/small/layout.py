"""The paths of the small scale: jobs write them, steps wait for them, reports read them."""

from dataclasses import dataclass, replace
from pathlib import Path

from reproduction.small.settings import Small

CURVE = "curve.json"  # written last: it exists when the training is done
START, PRESTART = "start", "prestart"  # the common checkpoints: of the packed weights, and pre-norm
T5 = "t5"  # the common encoder-decoder
DECODER = "decoder"  # the common causal decoder
TOKENS, T5_TOKENS = "tokens", "t5-tokens"  # the text, by tokenizer
HIDDEN = "squad_haystack"  # the task whose paragraphs are hidden
OWN = "own"  # the setting that a model was tuned with


@dataclass(frozen=True)
class SmallLayout:
    """All paths of a run at small scale, and its settings."""

    packed: Path  # weights, text and task data
    out: Path
    small: Small
    repeat: int = 0  # the number of the seed, from 0
    rate: float | None = None  # of tuning, if it is not that of the folder

    def repeated(self, number: int) -> "SmallLayout":
        """The paths and settings of another seed. The common checkpoints are shared."""
        return replace(self, small=replace(self.small, seed=self.small.seed + 1000 * number), repeat=number)

    def rated(self, rate: float | None) -> "SmallLayout":
        """The paths and settings of another learning rate on tasks; what comes before these is shared."""
        if rate is None or rate == self.small.tune_rate:
            return self
        return replace(self, small=replace(self.small, tune_rate=rate), rate=rate)

    @property
    def end(self) -> str:
        return f"@{self.repeat}" if self.repeat else ""

    @property
    def end_on_tasks(self) -> str:
        return self.end + (f"~{self.rate:g}" if self.rate else "")

    def start(self, kind: str = START) -> Path:
        return self.out / kind

    def reader(self, kind: str = START) -> Path:
        """The dense model that learned to answer paragraphs, from a common checkpoint; shared by all seeds."""
        return self.out / f"{kind}-reader"

    def tokens(self, split: str, kind: str = TOKENS) -> Path:
        return self.out / kind / split

    def pretrained(self, model: str) -> Path:
        return self.out / "pretrained" / f"{model}{self.end}"

    def answering(self, model: str) -> Path:
        return self.out / "answering" / f"{model}{self.end}"

    def tuned(self, model: str, task: str, setting: str = OWN) -> Path:
        return self.out / "tuned" / f"{model}{self.end_on_tasks}-{task}{'' if setting == OWN else f'-{setting}'}"

    def scores(self, model: str, task: str, setting: str = OWN, length: int | None = None) -> Path:
        end = f"-{length}" if length else ""
        return self.out / "scores" / f"{model}{self.end_on_tasks}-{task}-{setting}{end}.json"

    def chosen(self, model: str, task: str) -> Path:
        """The best of the learning rates that are searched."""
        searched = "-".join(f"{rate:g}" for rate in sorted(self.small.rates))
        return self.out / "rates" / f"{model}{self.end}-{task}-{searched}.json"

    def hidden(self) -> Path:
        """The test questions with hidden paragraphs."""
        return self.out / "hidden.json"

    def compiled(self, model: str) -> Path:
        """Exists when what is timed has been compiled."""
        return self.out / "times" / f"{model}.compiled"

    def times(self, model: str, setting: str = OWN) -> Path:
        return self.out / "times" / f"{model}-{setting}.json"
