"""Trees for the cross-attention of encoder-decoders: the decoder's tokens are the VIPs, the encoder's output is the
context. Its keys and values are computed once and read at every step.

Combined with a compressed encoder (`vcc.wrap` with a `VccConfig` first), neither side reads all tokens.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from vcc.decoders.config import DecoderConfig
from vcc.decoders.interface import attend_layer, plain_attention, real_columns
from vcc.decoders.layer import TreeLayer
from vcc.decoders.model import TreeReport
from vcc.decoders.open_cache import OPEN, reading
from vcc.decoders.recorded_step import StepCache
from vcc.decoders.wrap import rename_attention
from vcc.errors import ModelError, UsageError
from vcc.hosts import PREFIX as WRAPPED
from vcc.hosts.changed_copy import changed_copy

PREFIX = "vcc_cross_"
FAMILIES = ("t5", "mt5", "bart", "pegasus")  # they pass the cache's own keys to the attention function

Model = TypeVar("Model", bound=PreTrainedModel)


class CrossLayer(TreeLayer):
    """The encoder's keys and values for one decoder layer, in a tree."""

    _layer_type = "vcc_cross_tree"

    causal = False

    @property
    def keys(self) -> Any:  # type: ignore[override]
        """After the first step transformers takes the keys from here, without an update. An unwrapped model would
        mistake the rows outside the tree for all keys."""
        if self.is_initialized and OPEN.get() is None:
            raise UsageError("this cache keeps its keys in trees: only the model that vcc.wrap returned can read it")
        return super().keys

    def build(self, mask: Tensor | None) -> None:
        """Put all tokens into the tree at the first step, when the mask shows which are padding."""
        if self.unread:
            self.newest(real_columns(mask, self.length)).settle()


def cross_layer(module: Any, key: Tensor) -> CrossLayer | None:
    """The layer of the open cache that holds a module's keys; None: they are the decoder's own."""
    layers = getattr(getattr(OPEN.get(), "cross_attention_cache", None), "layers", ())
    number = getattr(module, "layer_idx", None)
    layer = layers[number] if isinstance(number, int) and number < len(layers) else None
    return layer if isinstance(layer, CrossLayer) and layer.holds(key) else None


def attend_cross(
    plain: str,
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """query (B, heads, q, D) -> (B, q, heads, D), called by transformers. Layers without a tree use `plain`."""
    dense = plain_attention(plain, module)
    layer = cross_layer(module, key)
    if layer is None:
        return dense(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs)
    layer.build(attention_mask)
    new = query.shape[2]
    if layer.reads_all(new, layer.tree.longest):
        if kwargs.get("position_bias") is not None:  # T5's is 0 in cross-attention, sized for the rows outside the tree
            kwargs["position_bias"] = query.new_zeros(1, query.shape[1], new, layer.length)
        layer.note_rows(layer.length - new, new, None)
        return dense(module, query, *layer.in_columns(), attention_mask, scaling=scaling, dropout=dropout, **kwargs)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend_layer(layer, query, new, scaling, new > layer.settings.block).to(query.dtype), None


def with_cross_trees(implementation: str | None) -> str:
    """The name of an attention implementation for these trees, registered with transformers once."""
    plain = (implementation or "sdpa").removeprefix(PREFIX)
    name = PREFIX + plain
    if name not in ALL_ATTENTION_FUNCTIONS:
        AttentionInterface.register(name, partial(attend_cross, plain))
        AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[plain])
    return name


class CrossTrees:
    """Mixed into an encoder-decoder's class: `generate` keeps the encoder's keys and values in trees."""

    cross_settings: DecoderConfig
    config: Any
    generation_config: Any
    device: Any

    def new_cache(self, room: int | None = None) -> EncoderDecoderCache:
        """An empty cache: transformers' own for the decoder's tokens, one tree per layer for the encoder's. With
        `room`, the maximum number of tokens, steps can be recorded."""
        across = DynamicCache()
        each: Any = partial(CrossLayer, self.cross_settings)
        across.layer_class_to_replicate = each
        if room is None:
            return EncoderDecoderCache(DynamicCache(), across)
        return StepCache(decoder_layers(self.config), room, across)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Hugging Face's `generate` with a cache of trees, unless another cache or none is requested."""
        if kwargs.get("past_key_values") is None and kwargs.get("use_cache") is not False:
            kwargs["past_key_values"] = self.new_cache(self.room(kwargs))
        self.__dict__["last_cache"] = kwargs.get("past_key_values")
        return super().generate(*args, **kwargs)  # type: ignore[misc]

    def room(self, kwargs: dict[str, Any]) -> int | None:
        """The maximum new tokens of `generate`, if it runs on a CUDA device token by token."""
        settings = kwargs.get("generation_config") or self.generation_config

        def asked(name: str) -> Any:
            return kwargs[name] if kwargs.get(name) is not None else getattr(settings, name, None)

        others = ("assistant_model", "prompt_lookup_num_tokens", "custom_generate")
        if self.device.type != "cuda" or (asked("num_beams") or 1) > 1 or any(asked(name) for name in others):
            return None
        begun = kwargs.get("decoder_input_ids")
        new = asked("max_new_tokens")
        most = asked("max_length") or 20 if new is None else new
        return int(most) + (1 if begun is None else begun.shape[1])

    def cross_report(self) -> tuple[TreeReport, ...]:
        """What each decoder layer read of the encoder's tokens in the last `generate`, per new token."""
        cache = self.__dict__.get("last_cache")
        layers = cache.cross_attention_cache.layers if isinstance(cache, EncoderDecoderCache) else ()
        trees = [layer for layer in layers if isinstance(layer, CrossLayer) and layer.tally.queries]
        return tuple(TreeReport(float(tree.tally.read) / tree.tally.queries, float(tree.length)) for tree in trees)


def with_recorded_steps(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A forward that leaves recorded steps to the cache. `generate` inspects its signature."""

    @wraps(plain)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        cache = kwargs.get("past_key_values")
        if not isinstance(cache, EncoderDecoderCache):
            return plain(self, *args, **kwargs)
        with reading(cache):
            if not args and isinstance(cache, StepCache) and cache.can_step(kwargs):
                return cache.step(partial(plain, self), kwargs)
            return plain(self, *args, **kwargs)

    return forward


def decoder_layers(config: Any) -> int:
    """The number of decoder layers, which T5 and BART name differently."""
    return int(getattr(config, "num_decoder_layers", None) or config.decoder_layers)


def is_encoder_decoder(model: Any) -> bool:
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def wrap_cross(model: Model, settings: DecoderConfig) -> Model:
    """An encoder-decoder, with its encoder compressed or not, whose cross-attention reads trees.

    It shares its weights with `model`, which is not changed, and is saved like `model`, without these settings.
    """
    model = unwrap_cross(model)
    kind = str(getattr(model.config, "model_type", "")).removeprefix(WRAPPED)
    if kind not in FAMILIES:
        raise ModelError(
            f"trees for the cross-attention of {type(model).__name__} are not supported, only for {', '.join(FAMILIES)}"
            + (": T5Gemma joins the keys of both attentions in its own code" if kind.startswith("t5gemma") else "")
        )
    body = {"cross_settings": settings, "plain_class": type(model), "__module__": type(model).__module__}
    body["forward"] = with_recorded_steps(type(model).forward)

    def change(copied: Any) -> None:
        rename_attention(copied, with_cross_trees)
        copied.__class__ = type(type(model).__name__, (CrossTrees, type(model)), body)

    return changed_copy(model, change)


def unwrap_cross(model: Model) -> Model:
    """The model without these trees, which shares its weights; other models are returned as they are."""

    def change(copied: Any) -> None:
        copied.__dict__.pop("last_cache", None)
        copied.__class__ = type(model).plain_class  # type: ignore[attr-defined]
        rename_attention(copied, lambda name: (name or "sdpa").removeprefix(PREFIX))

    return changed_copy(model, change) if isinstance(model, CrossTrees) else model
