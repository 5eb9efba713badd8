"""What a causal language model can do once it is wrapped."""

import functools
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.cache_utils import Cache, DynamicCache

from vcc.decoders.config import DecoderConfig
from vcc.decoders.document import KeptDocument, load_document, read_document
from vcc.decoders.interface import with_trees
from vcc.decoders.layer import TreeLayer
from vcc.errors import ModelError, UsageError


@dataclass(frozen=True)
class TreeReport:
    """What a layer has read in the steps of one cache, per query token on average. Prefill is not counted."""

    rows: float
    keys: float  # that a dense layer would have read

    @property
    def share(self) -> float:
        return self.rows / self.keys if self.keys else 1.0


class TreeDecoder:
    """Mixed into Hugging Face's classes with a language modelling head: every new cache is made of trees."""

    hf_class: Any
    config: Any

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        if config.vcc is None:
            config.vcc = DecoderConfig()
        self.enter_trees()

    @property
    def vcc(self) -> DecoderConfig:
        return DecoderConfig.from_dict(self.config.vcc)

    def enter_trees(self) -> None:
        """Have the attention function that knows trees called, in place of the one that was asked for."""
        name = with_trees(self.config._attn_implementation)
        for module in self.modules():  # type: ignore[attr-defined]
            own = module.__dict__.get("config")
            if own is not None and own._attn_implementation != name:
                own._attn_implementation_internal = name

    def set_attn_implementation(self, attn_implementation: Any, *args: Any, **kwargs: Any) -> None:
        super().set_attn_implementation(attn_implementation, *args, **kwargs)  # type: ignore[misc]
        self.enter_trees()

    def new_cache(self) -> DynamicCache:
        """An empty cache: a tree for each layer that sees all tokens, transformers' own for the others."""
        cache, settings = DynamicCache(config=self.config), self.vcc
        pairs = zip(cache.layers, cache.is_sliding, strict=True)
        cache.layers = [layer if sliding else TreeLayer(settings) for layer, sliding in pairs]
        return cache

    def forward_with_trees(self, **inputs: Any) -> Any:
        cache, use_cache = inputs.get("past_key_values"), inputs.get("use_cache")
        if use_cache is None:
            use_cache = getattr(self.config, "use_cache", True) and not self.training  # type: ignore[attr-defined]
        if cache is None and use_cache:
            inputs["past_key_values"] = cache = self.new_cache()
        if cache is not None:
            self.admit(cache)
        return self.hf_class.forward(self, **inputs)

    def admit(self, cache: Cache) -> None:
        """Check that a cache is one this model has made, or could have, and open it for one forward."""
        trees = [layer for layer in cache.layers if isinstance(layer, TreeLayer)]
        if not trees:
            return
        shape = (self.config.num_key_value_heads, head_width(self.config))
        for layer in trees:
            if len(cache.layers) != self.config.num_hidden_layers or (
                layer.is_initialized and (layer.keys.shape[1], layer.keys.shape[3]) != shape
            ):
                raise UsageError(
                    f"this cache has {len(cache.layers)} layers of {tuple(layer.keys.shape[1::2])} KV heads and their "
                    f"size; this model has {self.config.num_hidden_layers} of {shape}: it is another model's"
                )
            layer.entered = True
        self.__dict__["last_cache"] = cache

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """As Hugging Face's `generate`, with a cache of trees unless another cache is asked for."""
        settings = kwargs.get("generation_config") or self.generation_config  # type: ignore[attr-defined]
        asked = kwargs.get("cache_implementation", getattr(settings, "cache_implementation", None))
        caching = kwargs.get("use_cache", getattr(settings, "use_cache", None))
        if kwargs.get("past_key_values") is None and asked in (None, "dynamic") and caching is not False:
            kwargs["past_key_values"] = self.new_cache()
            kwargs.pop("cache_implementation", None)
        return super().generate(*args, **kwargs)  # type: ignore[misc]

    def read(self, ids: Any, chunk: int = 4096, leaves: str | None = None) -> KeptDocument:
        """Read a text (n,) or (1, n) once; questions continue from it, `document.ask(question_ids)`.

        It goes through the model `chunk` tokens at a time. `leaves="cpu"` keeps the trees' tokens in the computer's
        memory and only their means with the model.
        """
        return read_document(self, ids, chunk, leaves)

    def load_document(self, path: str | Path, leaves: str | None = None, verify: bool | None = None) -> KeptDocument:
        """A document that this model has read and `document.save` has written.

        The trees' tokens stay on disk, mapped into memory, or go to the "cpu" or the model's "device"; on a GPU they go
        there unless told otherwise. Everything is checked but the tokens of files beyond 256 MiB; `verify=True` checks
        these too.
        """
        return load_document(self, Path(path), leaves, verify)

    def vcc_report(self) -> tuple[TreeReport, ...]:
        """What each layer with a tree has read in the steps of the last cache; empty before the first."""
        cache = self.__dict__.get("last_cache")
        layers = [layer for layer in getattr(cache, "layers", ()) if isinstance(layer, TreeLayer) and layer.queries]
        return tuple(
            TreeReport(float(layer.rows_read) / layer.queries, layer.rows_of / layer.queries) for layer in layers
        )

    @staticmethod
    def forward_like(hf_class: Any) -> Any:
        """A forward with the signature of Hugging Face's, which `generate` and trainers look at."""
        signature = inspect.signature(hf_class.forward)

        @functools.wraps(hf_class.forward)
        def forward(self: TreeDecoder, *args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(self, *args, **kwargs).arguments
            bound.pop("self")
            rest = bound.pop("kwargs", {})
            return self.forward_with_trees(**bound, **rest)

        return forward


def head_width(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def check_decoder(model: Any) -> None:
    """Refuse what has no keys and values of all tokens to put into a tree."""
    config = model.config
    kinds = [type(layer) for layer in DynamicCache(config=config).layers]
    if all(getattr(kind, "is_sliding", False) for kind in kinds):
        raise ModelError(
            f"every layer of this {type(model).__name__} has a sliding window of {config.sliding_window} tokens: none "
            "keeps all tokens, so there is nothing to put into a tree"
        )
