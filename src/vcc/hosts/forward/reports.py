"""What the layers of a compressed pass did, for `model.vcc_report()` and `output_hidden_states`."""

from collections.abc import Collection
from dataclasses import dataclass, field

from torch import Tensor

from vcc.encode import Step


@dataclass(frozen=True)
class LayerReport:
    """What one layer saw in the last forward pass."""

    layer: int
    tokens: int  # in the input, per sequence, padding included
    rows: int  # the layer computed, per sequence
    scales: tuple[int, ...]  # () in a window layer
    # Per scale but the last: (B, h) the segments opened, numbered within their scale; with `mass`, -1 for none.
    opened: tuple[Tensor, ...]
    examples: tuple[int, ...] | None = None  # of the batch, that were compressed; None: all

    @property
    def ratio(self) -> float:
        """Tokens per row: the layer's compression."""
        return self.tokens / max(self.rows, 1)


@dataclass
class Watcher:
    """Called by `encode` after each layer: keeps a report and the requested hidden states."""

    tokens: int  # per sequence
    wanted: bool | Collection[int]  # of all layers, of none, or of the layers with these numbers
    reports: list[LayerReport] = field(default_factory=list)
    states: list[Tensor | None] = field(default_factory=list)

    def __call__(self, step: Step) -> None:
        opened = () if step.cut is None else tuple(nodes.detach() for nodes in step.cut.opened_nodes)
        if step.cut is not None and step.cut.wanted is not None:
            opened = tuple(nodes.masked_fill(~step.cut.wanted, -1) for nodes in opened)
        scales = () if step.tree is None else step.tree.scales
        rows = self.tokens if step.cut is None else step.rows
        self.reports.append(LayerReport(step.layer, self.tokens, rows, scales, opened))
        if self.wanted:
            keep = isinstance(self.wanted, bool) or step.layer in self.wanted
            self.states.append(step.whole().hidden if keep else None)

    def hidden_states(self, first: Tensor, last: Tensor) -> tuple[Tensor | None, ...] | None:
        """As Hugging Face returns them: the embeddings and the states after each layer, the last one finished."""
        if not self.wanted:
            return None
        states = [*self.states[:-1], None if self.states[-1] is None else last]
        return (first, *states) if isinstance(self.wanted, bool) else tuple(states)
