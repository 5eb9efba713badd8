"""`DecoderConfig`: every knob of the tree under a decoder's keys and values, checked once."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from vcc.config import Settings, as_tuple, require, whole
from vcc.core.cut import check_budget
from vcc.core.tree import check_scales
from vcc.errors import UsageError

BUDGET = 8  # leaves opened where neither a budget nor a mass is given
SHAPE_THE_TREE = ("scales", "first", "local", "fresh", "piece", "order", "spread")  # the others say how it is read


@dataclass(frozen=True)
class DecoderConfig(Settings):
    """How a causal language model reads the keys and values it has kept."""

    scales: Annotated[tuple[int, ...], "tokens per node, coarse to fine, ending in 1"] = (16, 1)
    budget: Annotated[
        tuple[int, ...] | None, "nodes opened at each scale but the last, by every KV head for every query token"
    ] = None
    mass: Annotated[
        float | None, "in place of a budget: open nodes until the closed ones hold less than 1 - mass of the attention"
    ] = None
    first: Annotated[int, "tokens at the start that are always read exactly (attention sinks)"] = 16
    local: Annotated[int, "last tokens that are always read exactly"] = 64
    fresh: Annotated[
        int, "new tokens that collect beside the local ones before they join the tree, so many at a time"
    ] = 64
    piece: Annotated[int, "tokens that are ordered together"] = 4096
    order: Annotated[Literal["key", "position"], "what makes tokens neighbours in the tree"] = "key"
    spread: Annotated[
        int,
        "numbers kept with a node for how far its keys are from their mean, by which too nodes are chosen; 0: none",
    ] = 16
    prefill: Annotated[
        Literal["exact", "blocks"],
        "long inputs attend to all tokens, or in blocks of queries that open nodes together",
    ] = "exact"
    block: Annotated[
        int,
        "up to so many tokens given at once are steps: each opens nodes for itself, as if they had come one by one; "
        "more are a prefill",
    ] = 64

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", as_tuple(self.scales, "scales"))
        check_scales(self.scales)
        require(len(self.scales) > 1, "scales", self.scales, "at least two: nodes, and the tokens in them")
        if self.budget is not None and self.mass is not None:
            raise UsageError(f"budget={self.budget!r} and mass={self.mass!r}: give one of the two")
        if self.mass is not None:
            number = isinstance(self.mass, (int, float)) and not isinstance(self.mass, bool)
            require(number and 0 < self.mass <= 1, "mass", self.mass, "a share of the attention, above 0 and at most 1")
        else:
            object.__setattr__(self, "budget", as_budget(self.budget, self.scales))
        require(whole(self.first, 0), "first", self.first, "a whole number of tokens, at least 0")
        require(whole(self.local, 0), "local", self.local, "a whole number of tokens, at least 0")
        coarsest = self.scales[0]
        for name in ("fresh", "piece"):
            value = getattr(self, name)
            rule = f"a multiple of the coarsest scale, {coarsest} tokens"
            require(whole(value, 1) and value % coarsest == 0, name, value, rule)
        require(self.order in ("key", "position"), "order", self.order, '"key" or "position"')
        require(whole(self.spread, 0), "spread", self.spread, "a whole number, at least 0")
        require(self.prefill in ("exact", "blocks"), "prefill", self.prefill, '"exact" or "blocks"')
        require(whole(self.block, 1), "block", self.block, "a whole number of tokens, at least 1")

    def other_tree(self, other: "DecoderConfig") -> list[str]:
        """The settings by which another configuration builds another tree of the same tokens."""
        return [name for name in SHAPE_THE_TREE if getattr(self, name) != getattr(other, name)]

    @property
    def leaf(self) -> int:
        """Tokens under a node of the finest scale that has means."""
        return self.scales[-2]


def as_budget(budget: Any, scales: tuple[int, ...]) -> tuple[int, ...]:
    """One number is the budget of every scale."""
    budget = BUDGET if budget is None else budget
    if isinstance(budget, int):
        budget = (budget,) * (len(scales) - 1)
    budget = as_tuple(budget, "budget")
    check_budget(budget, scales)
    return budget
