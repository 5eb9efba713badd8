"""How often the segment of an answer is opened, by layer."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from vcc.data.example import Example, Prediction
from vcc.data.features import Features
from vcc.hosts.forward.wrapped import Wrapped
from vcc.train.predict import Predictor


@dataclass(frozen=True)
class WatchingPredictor(Predictor):
    """A predictor that notes for each answer whether each layer opened the segment of its first token."""

    opened: dict[int, list[bool]] = field(default_factory=dict)  # by layer

    @staticmethod
    def watching(predictor: Predictor) -> "WatchingPredictor":
        return WatchingPredictor(**{one.name: getattr(predictor, one.name) for one in fields(predictor)})

    def answer(self, examples: Sequence[Example], features: Sequence[Features]) -> list[Prediction]:
        found = super().answer(examples, features)
        reports: Any = self.model.vcc_report() if isinstance(self.model, Wrapped) else ()
        for report in reports:
            if not report.scales:
                continue  # a window layer
            nodes = report.opened[-1].cpu()
            for i, one in enumerate(features):
                for first, _ in one.spans[:1]:  # the VIPs stand before the document
                    segment = (first - one.row.vip_count) // report.scales[-2]
                    self.opened.setdefault(report.layer, []).append(bool((nodes[i] == segment).any()))
        return found

    def shares(self) -> dict[int, float]:
        """The share of answers whose segment was opened, by layer."""
        return {layer: sum(some) / len(some) for layer, some in self.opened.items() if some}
