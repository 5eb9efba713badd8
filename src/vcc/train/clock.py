"""Training time of a run."""

import time

from vcc.train.processes import from_first


class Clock:
    """Seconds of training, over all starts of a run, against its budget of minutes (None: no budget)."""

    def __init__(self, minutes: float | None) -> None:
        self.minutes, self.seconds_before, self.started, self.share = minutes, 0.0, time.monotonic(), 0.0

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    def tick(self) -> bool:
        """Update the used share of the budget; true if it is used up. The first process's clock counts for all."""
        if self.minutes is not None:
            self.share = from_first(self.seconds / (60 * self.minutes))
        return self.share >= 1
