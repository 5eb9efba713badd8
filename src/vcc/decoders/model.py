"""The interface of a wrapped causal language model."""

import functools
import inspect
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from transformers.cache_utils import DynamicCache

from vcc.decoders.cache import TreeCache
from vcc.decoders.config import DecoderConfig
from vcc.decoders.document import KeptDocument
from vcc.decoders.interface import with_trees
from vcc.decoders.open_cache import reading
from vcc.errors import ModelError, UsageError
from vcc.hosts.card import Carded


@dataclass(frozen=True)
class TreeReport:
    """What a layer read in the steps of one cache, per query token on average. Prefill is not counted."""

    rows: float
    keys: float  # that a dense layer would have read

    @property
    def share(self) -> float:
        return self.rows / self.keys if self.keys else 1.0


class TreeDecoder(Carded):
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
        """Use the attention function with trees in place of the requested one."""
        name = with_trees(self.config._attn_implementation)
        for module in self.modules():  # type: ignore[attr-defined]
            own = module.__dict__.get("config")
            if own is not None and own._attn_implementation != name:
                own._attn_implementation_internal = name

    def set_attn_implementation(self, attn_implementation: Any, *args: Any, **kwargs: Any) -> None:
        super().set_attn_implementation(attn_implementation, *args, **kwargs)  # type: ignore[misc]
        self.enter_trees()

    def new_cache(self, record: bool = True) -> TreeCache:
        """An empty cache: a tree for each layer that sees all tokens, transformers' own for the others.

        On a GPU, steps of one token are recorded as a CUDA graph unless `record=False`.
        """
        return TreeCache.empty(self.config, self.vcc, record=record)

    def forward_with_trees(self, **inputs: Any) -> Any:
        cache, use_cache = inputs.get("past_key_values"), inputs.get("use_cache")
        if use_cache is None:
            use_cache = getattr(self.config, "use_cache", True) and not self.training  # type: ignore[attr-defined]
        if cache is None and use_cache:
            inputs["past_key_values"] = cache = self.new_cache()
        if not isinstance(cache, TreeCache):
            return self.hf_class.forward(self, **inputs)
        if not cache.steps.in_step(self, cache.layers):
            cache.check(self.config, self.vcc)
        self.__dict__["last_cache"] = cache
        if cache.steps.replays(self, cache.layers, inputs):
            output = cache.steps.step(partial(self.hf_class.forward, self), cache, inputs)
            if output is not None:
                return output
        with reading(cache):
            output = self.hf_class.forward(self, **inputs)
        cache.settle()
        return output

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Hugging Face's `generate` with a cache of trees, unless another cache is requested."""
        settings = kwargs.get("generation_config") or self.generation_config  # type: ignore[attr-defined]
        asked = kwargs.get("cache_implementation", getattr(settings, "cache_implementation", None))
        caching = kwargs.get("use_cache", getattr(settings, "use_cache", None))
        if kwargs.get("past_key_values") is None and asked in (None, "dynamic") and caching is not False:
            kwargs["past_key_values"] = cache = self.new_cache()
            kwargs.pop("cache_implementation", None)
            if getattr(settings, "is_assistant", False):  # its guesses are cropped: sliding windows must keep more
                cache.activate_past_recording()
        return super().generate(*args, **kwargs)  # type: ignore[misc]

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        """Rejected, with what comes through it: `generate_batch` and `transformers serve --continuous-batching`."""
        raise UsageError(
            "continuous batching keeps keys in pages of its own, which hold no trees: call generate with a batch, or "
            "use vcc.unwrap(model)"
        )

    def read(self, ids: Any, chunk: int = 4096, leaves: str | None = None) -> KeptDocument:
        """Read a text (n,) or (1, n) once; questions continue from it, `document.ask(question_ids)`.

        It is read `chunk` tokens at a time. `leaves="cpu"` keeps the trees' tokens in CPU memory and only their means
        on the model's device.
        """
        return KeptDocument.read(self, ids, chunk, leaves)

    def load_document(self, path: str | Path, leaves: str | None = None, verify: bool | None = None) -> KeptDocument:
        """Load a document that this model read and `document.save` wrote.

        The trees' tokens stay memory-mapped on "disk", or go to the "cpu" or the model's "device"; by default they go
        to a GPU if the model is on one. Everything is verified except the tokens of files over 256 MiB; `verify=True`
        verifies these too.
        """
        return KeptDocument.load(self, Path(path), leaves, verify)

    def vcc_report(self) -> tuple[TreeReport, ...]:
        """What each layer with a tree read in the steps of the last cache; empty before the first."""
        cache = self.__dict__.get("last_cache")
        tallies = [layer.tally for layer in cache.trees if layer.tally.queries] if cache is not None else []
        return tuple(TreeReport(float(tally.read) / tally.queries, tally.keys / tally.queries) for tally in tallies)

    @staticmethod
    def forward_like(hf_class: Any) -> Any:
        """A forward with Hugging Face's signature, which `generate` and trainers inspect."""
        signature = inspect.signature(hf_class.forward)

        @functools.wraps(hf_class.forward)
        def forward(self: TreeDecoder, *args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(self, *args, **kwargs).arguments
            bound.pop("self")
            rest = bound.pop("kwargs", {})
            return self.forward_with_trees(**bound, **rest)

        return forward


def check_decoder(model: Any) -> None:
    """Raise if no layer keeps the keys and values of all tokens."""
    config = model.config
    kinds = [type(layer) for layer in DynamicCache(config=config).layers]
    if all(getattr(kind, "is_sliding", False) for kind in kinds):
        raise ModelError(
            f"every layer of this {type(model).__name__} has a sliding window of {config.sliding_window} tokens: none "
            "keeps all tokens, so there is nothing to put into a tree"
        )
