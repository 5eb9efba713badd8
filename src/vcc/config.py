"""`VccConfig`: every setting of the method, validated once."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from vcc.core.cut import check_budget
from vcc.core.score import SCORES
from vcc.core.tree import check_scales
from vcc.errors import UsageError

if TYPE_CHECKING:
    ScoreName = str
else:
    ScoreName = Literal[tuple(SCORES)]  # the command line lists them


# The layers of the paper's models (base 12, larger ones 24) -> how many of them run on windows.
WINDOW_LAYERS = {12: 4, 24: 6}


class Settings:
    """A mixin for dataclasses of settings: to JSON values, and back."""

    def to_dict(self) -> dict[str, Any]:
        values: Mapping[str, Any] = asdict(self)  # type: ignore[call-overload]
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        if not isinstance(values, Mapping):
            raise UsageError(f"the VCC settings are {values!r}: they must be an object with names and values")
        known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        unknown = sorted(set(values) - known)
        if unknown:
            raise UsageError(f"unknown VCC settings {unknown}; the settings are {sorted(known)}")
        return cls(**values)


@dataclass(frozen=True)
class VccConfig(Settings):
    """How a model reads long inputs. The defaults are the paper's for 16K tokens and more."""

    scales: Annotated[tuple[int, ...], "tokens per node, coarse to fine, ending in 1"] = (16, 1)
    budget: Annotated[tuple[int, ...], "nodes opened at each scale but the last"] = (90,)
    window: Annotated[int, "tokens per window in the first layers"] = 512
    window_layers: Annotated[
        int | None, "number of layers on windows (None: 4 of 12 and 6 of 24 as in the paper, else a third)"
    ] = None
    vip_window: Annotated[
        Literal["inline", "own", "every"],
        "VIPs share windows with their neighbours; or get windows of their own, which makes the states of the rest of "
        "the document independent of them; or are seen by every token and see all of them, and windows slide",
    ] = "inline"
    score: Annotated[
        ScoreName,
        "what opens a node: the attention of the VIPs (the paper's), or the similarity of its mean and theirs",
    ] = "attention"
    explore: Annotated[float, "in training, the probability of a random cut"] = 0.1
    dense_below: Annotated[
        int | Literal["auto"],
        'inputs shorter than this run through the untouched model; "auto": if compressing would not save time',
    ] = "auto"
    max_vips: Annotated[
        int | None,
        "rows reserved for VIPs, which makes shapes independent of the mask (None: as many as the batch needs, 512 in "
        "a compiled graph)",
    ] = None
    mass: Annotated[
        float | None,
        "with two scales: open nodes only until the closed ones have less than 1 - mass of the score; the budget is "
        "the maximum",
    ] = None
    mean_norm: Annotated[
        bool, "scale rows that stand for several tokens to the norm of a token, for layers that do not normalise them"
    ] = False
    gate_closed: Annotated[
        bool, "in training, scores of closed nodes get a gradient too, through the update of their rows"
    ] = False
    reach: Annotated[
        int | None,
        "in compressed layers, rows further apart than this many tokens do not see each other, except VIPs, which see "
        "all and are seen by all (None: everybody sees everybody, as in the paper)",
    ] = None

    def __post_init__(self) -> None:
        # A configuration loaded from JSON has lists.
        object.__setattr__(self, "scales", as_tuple(self.scales, "scales"))
        object.__setattr__(self, "budget", as_tuple(self.budget, "budget"))
        check_scales(self.scales)
        check_budget(self.budget, self.scales)
        require(whole(self.window, 1), "window", self.window, "a whole number of tokens, at least 1")
        ok = self.window_layers is None or whole(self.window_layers, 0)
        require(ok, "window_layers", self.window_layers, "None or a whole number of layers, at least 0")
        known = self.vip_window in ("inline", "own", "every")
        require(known, "vip_window", self.vip_window, '"inline", "own" or "every"')
        require(self.score in SCORES, "score", self.score, " or ".join(f'"{name}"' for name in SCORES))
        if self.mass is not None:
            ok = number(self.mass) and 0 < self.mass <= 1
            require(ok, "mass", self.mass, "a share of the score, above 0 and at most 1")
            require(len(self.scales) == 2, "scales", self.scales, "two scales if mass is given")
        for name in ("mean_norm", "gate_closed"):
            require(isinstance(getattr(self, name), bool), name, getattr(self, name), "True or False")
        ok = self.reach is None or whole(self.reach, 0)
        require(ok, "reach", self.reach, "None or a whole number of tokens, at least 0")
        ok = number(self.explore) and 0 <= self.explore <= 1
        require(ok, "explore", self.explore, "a probability, from 0 to 1")
        ok = self.dense_below == "auto" or whole(self.dense_below, 0)
        require(ok, "dense_below", self.dense_below, '"auto" or a whole number of tokens, at least 0')
        ok = self.max_vips is None or whole(self.max_vips, 0)
        require(ok, "max_vips", self.max_vips, "None or a whole number of rows, at least 0")

    def resolved(self, layers: int) -> "VccConfig":
        """Return the configuration with `window_layers` set for a model of `layers` layers."""
        usual = WINDOW_LAYERS.get(layers, layers // 3)
        config = self if self.window_layers is not None else replace(self, window_layers=usual)
        if config.window_layers is None or config.window_layers > layers:
            raise UsageError(f"window_layers={config.window_layers}: this model has only {layers} layers")
        return config


def as_tuple(value: Any, name: str) -> tuple[int, ...]:
    if not isinstance(value, (tuple, list)):
        raise UsageError(f"{name}={value!r}: it must be a tuple of whole numbers")
    return tuple(value)


def whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def require(ok: bool, name: str, value: Any, rule: str) -> None:
    if not ok:
        raise UsageError(f"{name}={value!r}: it must be {rule}")
