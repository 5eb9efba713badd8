"""A budget that closes slowly: training starts with everything open, which is the dense model, and ends at the budget
that the model is used with."""

from dataclasses import dataclass, replace

from vcc.config import VccConfig

LEVELS = 3  # budgets on the way; each is another compiled graph


@dataclass(frozen=True)
class ClosingBudget:
    """Over the first `share` of a run, the budget falls in equal steps from all nodes to that of `settings`."""

    settings: VccConfig
    length: int  # tokens of the longest input
    share: float

    def at(self, progress: float) -> VccConfig:
        """The settings for this share of the run, 0 to 1."""
        level = int(LEVELS * progress / self.share) if self.share else LEVELS
        if level >= LEVELS:
            return self.settings
        left = 1 - level / LEVELS
        every = [-(-self.length // scale) for scale in self.settings.scales[:-1]]
        budget = tuple(
            own + round(left * max(nodes - own, 0)) for own, nodes in zip(self.settings.budget, every, strict=True)
        )
        return replace(self.settings, budget=budget)

    def levels(self) -> list[VccConfig]:
        """All settings on the way, from everything open to the last before those at the end."""
        return [self.at(self.share * (level + 0.5) / LEVELS) for level in range(LEVELS)]
