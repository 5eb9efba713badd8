"""`TreeCache`: the keys and values of all layers of a wrapped model."""

import copy
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache

from vcc.decoders.causal_steps import CausalSteps
from vcc.decoders.config import DecoderConfig
from vcc.decoders.layer import TreeLayer, grow_together
from vcc.decoders.open_cache import OPEN
from vcc.errors import UsageError


class TreeCache(DynamicCache):
    """A tree for each layer that sees all tokens, transformers' own for the others (sliding windows)."""

    def __init__(self, layers: Iterable[Any], record: bool = True) -> None:
        Cache.__init__(self, layers=list(layers))
        self.steps = CausalSteps(record)

    @classmethod
    def empty(
        cls,
        config: Any,
        settings: DecoderConfig,
        leaves_on: torch.device | None = None,
        exact: bool = False,
        record: bool = True,
        expected: int = 0,
    ) -> "TreeCache":
        """For a model of this configuration.

        `exact`: the input is one text, which is read exactly. `record`: steps are recorded if possible. `expected`:
        tokens of the text, if known.
        """
        layers = DynamicCache(config=config).layers
        return cls(
            (
                layer if getattr(layer, "is_sliding", False) else TreeLayer(settings, leaves_on, exact, expected)
                for layer in layers
            ),
            record,
        )

    @property
    def trees(self) -> list[TreeLayer]:
        return [layer for layer in self.layers if isinstance(layer, TreeLayer)]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if OPEN.get() is not self:
            raise UsageError(
                "this cache keeps its keys in trees: only the model that vcc.wrap returned, or another of its "
                "family and size, can read it; use the wrapped model, or a DynamicCache with this model"
            )
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)

    def settle(self) -> None:
        """Move due tokens into all trees, at the end of a forward."""
        by_device: dict[torch.device, list[TreeLayer]] = {}
        for layer in self.trees:
            by_device.setdefault(layer.device, []).append(layer)
        for layers in by_device.values():
            grow_together(layers, layers[0].counts.due)

    def branch(self, batch: int) -> "TreeCache":
        """A cache for `batch` continuations of the text. Trees are shared; this cache does not change."""
        return TreeCache((continued(layer, batch) for layer in self.layers), self.steps.wanted)

    def with_settings(self, settings: DecoderConfig) -> "TreeCache":
        """The same trees, read with another budget, mass, prefill or block. This cache does not change."""
        layers = (o.with_settings(settings) if isinstance(o, TreeLayer) else copy.copy(o) for o in self.layers)
        return TreeCache(layers, self.steps.wanted)

    def check(self, config: Any, settings: DecoderConfig) -> None:
        """Raise if this model could not have made this cache."""
        if len({self.get_seq_length(number) for number in range(len(self))}) > 1:
            raise UsageError("the layers of this cache differ in length: a forward was interrupted")
        heads, width = config.num_key_value_heads, head_width(config)
        for layer in self.trees:
            found = layer.keys.shape[1::2] if layer.is_initialized else (heads, width)
            if len(self.layers) != config.num_hidden_layers or tuple(found) != (heads, width):
                raise UsageError(
                    f"this cache has {len(self.layers)} layers with {found[0]} KV heads of size {found[1]}; this model "
                    f"has {config.num_hidden_layers} with {heads} of size {width}: it is another model's"
                )
            if layer.settings is not settings and layer.settings != settings:
                raise UsageError(f"this cache was made with {differences(layer.settings, settings)}")


def continued(layer: Any, batch: int) -> Any:
    """A copy of a layer for `batch` continuations."""
    if isinstance(layer, TreeLayer):
        return layer.continued(batch)
    layer = copy.copy(layer)
    layer.batch_repeat_interleave(batch)
    return layer


def differences(cached: DecoderConfig, wanted: DecoderConfig) -> str:
    names = [field.name for field in fields(cached) if getattr(cached, field.name) != getattr(wanted, field.name)]
    told = ", ".join(f"{name}={getattr(cached, name)!r}" for name in names)
    own = ", ".join(f"{name}={getattr(wanted, name)!r}" for name in names)
    if cached.other_tree(wanted):
        return f"{told}, this model has {own}: their trees differ. Read the text again with this model"
    return f"{told}, this model has {own}: cache.with_settings(model.vcc) applies the model's settings"


def head_width(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
