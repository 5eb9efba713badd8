"""The probability that an answer is right: logits are not calibrated.

It depends on a span's lead over "no answer", on its margin over the best other span, and on the length of the text: a
longer text has more places that seem to answer. The weights are fitted on validation documents
(`shipped_model.calibrate`) and saved with the model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vcc.config import require

FARTHEST = 20.0  # logits; larger margins are clipped
SHORTEST, LONGEST = 64, 1024  # tokens; texts beyond count as these


@dataclass(frozen=True)
class Calibration:
    """P(right) = sigmoid(lead x `lead` + margin x `margin` + doublings x `size` + `offset`).

    `doublings` is how often the text is twice as long as SHORTEST. By default the lead is taken as the logit.
    """

    lead: float = 1.0
    margin: float = 0.0
    offset: float = 0.0
    size: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lead", "margin", "offset", "size"):
            value = getattr(self, name)
            ok = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            require(ok, f"calibration.{name}", value, "a finite number")
        for name in ("lead", "margin"):
            require(
                getattr(self, name) >= 0, f"calibration.{name}", getattr(self, name), "at least 0: more is likelier"
            )

    def probabilities(self, leads: Sequence[float], tokens: int = SHORTEST) -> list[float]:
        """The probability of each span of one question, best first, from their leads and the tokens of the text.

        A lone span competes with "no answer" only, whose lead is 0.
        """
        found = []
        base = self.size * doublings(tokens) + self.offset
        others = [*leads[1:2], *[leads[0]] * (len(leads) - 1)] or [0.0] if leads else []
        for lead, other in zip(leads, others, strict=True):
            z = self.lead * lead + self.margin * max(-FARTHEST, min(lead - other, FARTHEST)) + base
            found.append(1 / (1 + math.exp(-max(-500.0, min(z, 500.0)))))
        return found


def doublings(tokens: int) -> float:
    """How often a text is twice as long as SHORTEST: from 0 to 4."""
    return math.log2(max(SHORTEST, min(tokens, LONGEST)) / SHORTEST)
