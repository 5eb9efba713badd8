"""`DecoderConfig`: the settings of a decoder's trees, checked once."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from vcc.config import Settings, as_tuple, require, whole
from vcc.core.cut import check_budget
from vcc.core.tree import check_scales
from vcc.errors import UsageError

BUDGET = 8  # leaves opened by default, without a budget or mass
SHAPE_THE_TREE = ("scales", "first", "local", "fresh", "piece", "order", "spread")  # the others only affect reading


@dataclass(frozen=True)
class DecoderConfig(Settings):
    """How a decoder keeps and reads keys and values."""

    scales: Annotated[tuple[int, ...], "tokens per node, coarse to fine, ending in 1"] = (16, 1)
    budget: Annotated[
        tuple[int, ...] | int | None, "nodes opened at each scale but the last, per KV head and query token"
    ] = None
    mass: Annotated[
        float | None, "instead of a budget: open nodes until the closed ones have less than 1 - mass of the attention"
    ] = None
    first: Annotated[int, "first tokens, always read exactly (attention sinks)"] = 16
    local: Annotated[int, "last tokens, always read exactly"] = 64
    fresh: Annotated[int, "new tokens that collect beside the local ones before joining the tree together"] = 64
    piece: Annotated[int, "tokens that are ordered together"] = 4096
    order: Annotated[Literal["key", "position"], "order of tokens in the tree"] = "key"
    spread: Annotated[
        int,
        "numbers per node for the spread of its keys, used to choose nodes; 0: none",
    ] = 16
    prefill: Annotated[
        Literal["exact", "blocks"],
        "long inputs attend to all tokens, or in blocks of queries that open nodes jointly",
    ] = "exact"
    block: Annotated[
        int,
        "up to this many tokens in a call are steps: each opens its own nodes, as if given one by one; "
        "more are prefill",
    ] = 64

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", as_tuple(self.scales, "scales"))
        check_scales(self.scales)
        require(len(self.scales) > 1, "scales", self.scales, "at least two: nodes and their tokens")
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
        """The differing settings that change the tree of the same tokens."""
        return [name for name in SHAPE_THE_TREE if getattr(self, name) != getattr(other, name)]

    @property
    def budgets(self) -> tuple[int, ...] | None:
        """The budget of each scale but the last; None with `mass`."""
        return self.budget if isinstance(self.budget, tuple) else None

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
