"""Shared by all wrapped models: settings, reports, and shared weights."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from vcc.config import VccConfig
from vcc.core.cut import Cut
from vcc.core.tree import SegmentTree
from vcc.hosts.card import Carded
from vcc.hosts.forward.reports import LayerReport
from vcc.hosts.forward.request import LongInput
from vcc.hosts.made_classes import CLASSES, change_class

# Wrapped model -> a weak reference to its original; filled by `vcc.wrap`.
SHARED: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


@dataclass(frozen=True)
class VipArguments:
    """The arguments that a wrapped forward adds to Hugging Face's, and the rule of the head."""

    vip_mask: Tensor | None = None  # (B, n)
    vip_length: int | Tensor | None = None
    vip_rule: str | None = None


@dataclass
class Openings:
    """The cuts of a forward pass, in order, and the tree they are cuts of, for a loss on them."""

    cuts: list[Cut] = field(default_factory=list)
    tree: SegmentTree | None = None  # None: nothing was compressed

    def add(self, cut: Cut, tree: SegmentTree) -> None:
        self.cuts.append(cut)
        self.tree = tree


@dataclass
class EncoderState:
    """The state that a wrapped encoder adds to Hugging Face's attributes, as its `vcc_state`."""

    settings: VccConfig
    before_decoder: bool  # whose attentions can be returned where ours cannot
    report: tuple[LayerReport, ...] = ()  # of the last forward pass
    inputs_read: int = 0
    inputs_compressed: int = 0
    graphs: Callable[[Any, LongInput], Tensor] | None = None  # of `vcc.compile`
    openings: Openings | None = None  # filled by forward passes while it is set
    from_head: VipArguments | None = None  # within a call of a head that does not pass them on

    def begin(self, read: int, compressed: int) -> None:
        """Count a batch and drop the last report."""
        self.report = ()
        self.inputs_read += read
        self.inputs_compressed += compressed


class Wrapped(Carded):
    """Any wrapped model: it has settings and reports of its layers."""

    hf_class: ClassVar[Any]
    forward_names: ClassVar[tuple[str, ...]]  # the parameters of the Hugging Face forward, in order
    config: Any  # this and the next come from Hugging Face's class
    training: bool
    has_decoder = False

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        install(self)

    @property
    def vcc(self) -> VccConfig:
        return state_of(self).settings

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """`.half()`, `.to()` and the like all call this."""
        before = places_and_types(self)
        result = super()._apply(fn, recurse)  # type: ignore[misc]
        original = SHARED[self]() if self in SHARED else None
        if original is not None and places_and_types(self) != before:
            warnings.warn(
                f"the {type(original).__name__} that this model was made from shares its weights: it now has the new "
                "type and device too. To keep it unchanged, wrap a copy: vcc.wrap(copy.deepcopy(model), config)",
                stacklevel=3,
            )
        return result

    def vcc_report(self) -> tuple[LayerReport, ...]:
        """Per layer, what the last forward pass opened and saw; empty if it ran dense or compiled."""
        return state_of(self).report

    def vcc_share(self) -> tuple[int, int]:
        """The number of compressed inputs, and of all inputs, since the model was made; the others were too short
        (`dense_below`) and ran through the untouched model."""
        state = state_of(self)
        return state.inputs_compressed, state.inputs_read

    def begin_state(self, has_decoder: bool) -> None:
        """Called once the classes are set; encoders create their `vcc_state`."""


def install(model: Any) -> None:
    """Turn the modules inside `model` into wrapped ones, with the settings of their configuration."""
    for module in model.modules():
        if not decodes(module):
            change_class(module, CLASSES)
        if isinstance(module, Wrapped):
            module.begin_state(model.has_decoder)
    model.config.vcc = state_of(model).settings.to_dict()


def decodes(module: Any) -> bool:
    """T5 builds its decoder from the classes of its encoder."""
    return bool(module.__dict__.get("is_decoder", False))


def state_of(model: Any) -> EncoderState:
    """The state of the encoder inside a wrapped model."""
    return next(module.vcc_state for module in model.modules() if "vcc_state" in module.__dict__)


def places_and_types(model: Any) -> set[tuple[torch.device, torch.dtype]]:
    return {(parameter.device, parameter.dtype) for parameter in model.parameters()}
