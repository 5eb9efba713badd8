"""Steps of a causal model as a CUDA graph: one real token for each sequence, written to the rows outside the trees.

The trees grow between steps, outside of the graph and in place. If their storage becomes too small, or a layer's tokens
move for another reason, the step is recorded again.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache
from transformers.modeling_outputs import CausalLMOutputWithPast

from vcc.decoders.counts import TokenCounts
from vcc.decoders.layer import TreeLayer
from vcc.decoders.open_cache import reading
from vcc.decoders.recorded_layer import RecordedLayer, StepState
from vcc.decoders.recorded_step import RecordedStep, is_step
from vcc.decoders.use_kernels import rows_read, why_no_kernel

GIVEN = {"input_ids", "attention_mask", "position_ids", "past_key_values", "use_cache", "return_dict"}
GIVEN |= {"logits_to_keep", "cache_position"}  # one token has one row of logits and a known place
PATIENCE = 2  # steps in a row before recording, which costs three: assistants write a few and go back


class CausalSteps:
    """The recorded step of one cache and one model."""

    def __init__(self, wanted: bool = True) -> None:
        self.wanted = wanted
        self.recorded = RecordedStep()
        self.layers: list[RecordedLayer] = []
        self.model: weakref.ref[Any] | None = None
        self.counts: TokenCounts | None = None  # of all layers after the last replay
        self.row = 0  # consecutive steps

    def __deepcopy__(self, memo: Any) -> "CausalSteps":
        return CausalSteps(self.wanted)  # a graph is bound to its tensors

    def replays(self, model: Any, layers: Sequence[Any], given: dict[str, Any]) -> bool:
        """Whether this forward is a step that can be replayed."""
        self.row = self.row + 1 if self.can_step(model, layers, given) else 0
        return self.row > PATIENCE or (self.row > 0 and self.recorded.graph is not None)

    def can_step(self, model: Any, layers: Sequence[Any], given: dict[str, Any]) -> bool:
        if not self.wanted or self.recorded.refused or not is_step(given, "input_ids", GIVEN):
            return False
        if not isinstance(given.get("logits_to_keep", 0), int) or not all(isinstance(o, TreeLayer) for o in layers):
            return False
        if not self.in_step(model, layers) and not self.prepare(model, layers):
            return False
        mask = given.get("attention_mask")
        return mask is None or (mask.ndim == 2 and bool(mask[:, -1].all()))

    def in_step(self, model: Any, layers: Sequence[Any]) -> bool:
        """Whether the layers are unchanged since the last replay: any change gives them new counts."""
        ready = self.recorded.graph is not None and self.model is not None and self.model() is model
        return ready and self.room_left > 0 and all(layer.counts is self.counts for layer in layers)

    def prepare(self, model: Any, layers: Sequence[TreeLayer]) -> bool:
        """Update the graph's inputs to the layers' state, or drop the graph. -> whether steps can follow."""
        self.counts = None
        if not all(layer.is_initialized and not layer.unread for layer in layers) or not self.can_record(layers):
            return False
        first = layers[0]
        if any(layer.reads_all(1, int(layer.counts.in_tree.max())) for layer in layers):
            return False
        for layer in layers:
            layer.rows.make_room(layer.counts.room)
        storage = first.rows.storage
        if not storage.writable or first.rows.used == storage.room or any(differ(first, layer) for layer in layers):
            return False
        same = self.recorded.graph is not None and self.model is not None and self.model() is model
        if not (same and all(mine.serves(layer) for mine, layer in zip(self.layers, layers, strict=True))):
            self.recorded.forget()
            self.model = weakref.ref(model)
            self.state = StepState.like(first)
            self.layers = [RecordedLayer(layer, self.state) for layer in layers]
        self.state.load(first)
        self.counts = first.counts
        for layer in layers:
            layer.counts = self.counts
        self.quiet, self.room_left = self.counts.quiet_steps, storage.room - first.rows.used
        self.rows = float(rows_read(self.counts, first.tree).mean())
        return True

    def can_record(self, layers: Sequence[TreeLayer]) -> bool:
        """Whether everything runs on one CUDA device without waiting for it."""
        return len({layer.device for layer in layers}) == 1 and all(
            layer.device.type == "cuda"
            and why_no_kernel(layer.rows.storage.keys[:, :, :1], layer.tree, layer.settings) is None
            for layer in layers
        )

    def step(self, forward: Callable[..., Any], cache: Any, given: dict[str, Any]) -> CausalLMOutputWithPast | None:
        """Replay a step, after recording it if needed; None: it cannot be recorded."""
        first: TreeLayer = cache.layers[0]
        ids = given["input_ids"]
        self.state.place.fill_(first.rows.used)
        inputs = {"input_ids": ids, "position_ids": positions(given, first.length)}
        if self.recorded.graph is None:
            self.recorded.record(lambda fixed: self.work(forward, fixed), inputs)
        if self.recorded.graph is None:
            return None
        logits = self.recorded.replay(inputs)
        self.count(cache)
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)  # type: ignore[arg-type]

    def work(self, forward: Callable[..., Any], inputs: dict[str, Tensor]) -> Tensor:
        """The work to record. It needs no mask: padding in the rows and trees is never visible."""
        self.state.live.index_fill_(1, self.state.place, True)
        cache = Cache(layers=list(self.layers))
        with reading(cache):
            return forward(**inputs, past_key_values=cache, use_cache=True).logits

    def count(self, cache: Any) -> None:
        """The Python part of a step."""
        assert self.counts is not None
        self.counts = self.counts.more(1)
        self.rows += 1
        for layer in cache.layers:
            layer.rows.appended_by_graph(layer.length)
            layer.tally = layer.tally.plus(layer.length, 1, self.rows)
            layer.length += 1
            layer.counts = self.counts
        self.quiet, self.room_left = self.quiet - 1, self.room_left - 1
        if self.quiet < 0:
            cache.settle()


def positions(given: dict[str, Any], length: int) -> Tensor:
    """(B, 1) the positions of the new tokens."""
    ids, places = given["input_ids"], given.get("position_ids")
    if places is None:
        return torch.full_like(ids, length)
    return places.expand(ids.shape)


def differ(one: TreeLayer, other: TreeLayer) -> bool:
    """Whether two layers of a cache have seen different tokens."""
    if one.counts is other.counts:
        same = True
    else:
        pairs = ((one.counts.tokens, other.counts.tokens), (one.counts.in_tree, other.counts.in_tree))
        same = all(torch.equal(a, b) for a, b in pairs) and one.counts.every == other.counts.every
    sizes = [(layer.length, layer.rows.used, layer.rows.storage.room, layer.tree.lengths) for layer in (one, other)]
    return not same or sizes[0] != sizes[1]
