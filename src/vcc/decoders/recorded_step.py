"""A step of an encoder-decoder as a CUDA graph.

While a text is written nothing grows but what the decoder has written itself. With room for all of it from the start,
every step has the same shapes, and Python, which takes several times as long as the kernels, need not run again.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, EncoderDecoderCache
from transformers.cache_utils import StaticLayer
from transformers.modeling_outputs import Seq2SeqLMOutput

from vcc.cuda_graph import record, warn_not_recorded
from vcc.decoders.use_kernels import why_no_kernel

# What `generate` gives a step, if nothing is asked that the graph does not compute.
GIVEN = {"decoder_input_ids", "past_key_values", "encoder_outputs", "attention_mask"}
GIVEN |= {"vip_mask", "use_cache", "return_dict"}  # the first of these is for the encoder, which has run


class StepCache(EncoderDecoderCache):
    """Room for what is written and, for what is read, the caches given; from the second step on, steps are replayed."""

    is_compileable = False  # `generate` would compile the steps; they are recorded

    def __init__(self, layers: int, room: int, across: Cache) -> None:
        self.written = [StaticLayer(room) for _ in range(layers)]
        super().__init__(Cache(layers=list(self.written)), across)
        self.graph: Any = None
        self.refused = False  # whether recording has failed

    def can_step(self, given: dict[str, Any]) -> bool:
        """Whether a forward call is a step of one token, with nothing else asked of it."""
        ids = given.get("decoder_input_ids")
        asked = {name for name, value in given.items() if value is not None and value is not False}
        if ids is None or ids.shape[1] != 1 or not asked <= GIVEN or torch.is_grad_enabled():
            return False
        if self.graph is not None:
            return ids.shape == self.ids.shape
        if self.refused:
            return False
        return len(self.is_updated) == len(self) and all(self.is_updated.values()) and self.can_record()

    def can_record(self) -> bool:
        """Whether all that runs is on a CUDA device and never waits for it."""
        return all(
            layer.device.type == "cuda"
            and not layer.reads_all(1, layer.tree.longest)
            and why_no_kernel(layer.keys[:, :, :1], layer.tree, layer.settings) is None
            for layer in self.trees
        )

    @property
    def trees(self) -> list[Any]:
        return self.cross_attention_cache.layers

    def step(self, forward: Callable[..., Any], given: dict[str, Any]) -> Seq2SeqLMOutput:
        if self.graph is None:
            self.record(forward, given)
        if self.graph is None:
            return forward(**given)
        self.ids.copy_(given["decoder_input_ids"])
        self.graph.replay()
        for layer, rows in zip(self.trees, self.rows, strict=True):
            layer.note_rows(layer.length - 1, 1, rows)
        return Seq2SeqLMOutput(logits=self.logits.clone(), past_key_values=self)  # type: ignore[arg-type]

    def record(self, forward: Callable[..., Any], given: dict[str, Any]) -> None:
        with torch.inference_mode(False):  # what is made in that mode could not be written to outside of it
            self.ids: Tensor = given["decoder_input_ids"].clone()
        # The trees know which tokens are padding; a mask would be looked at, and looking waits for the device.
        fixed = {**given, "decoder_input_ids": self.ids, "attention_mask": None}
        lengths: list[Any] = [layer.cumulative_length for layer in self.written]
        before = [length.clone() for length in lengths]
        slots = torch.arange(self.written[0].max_cache_len, device=self.ids.device).expand(len(self.ids), -1)

        def work() -> Tensor:
            # Without a mask of what is written BART would ask for its length, and asking waits as well.
            return forward(**fixed, decoder_attention_mask=(slots <= lengths[0]).long()).logits

        counted = [layer.tally for layer in self.trees]
        try:
            self.graph, self.logits = record(work)
        except RuntimeError as error:  # something waited for the device
            self.refused = True
            warn_not_recorded("steps are", error)
        for length, was in zip(lengths, before, strict=True):
            length.copy_(was)
        self.rows = []  # a token reads the same number at every step
        for layer, before_it in zip(self.trees, counted, strict=True):
            read = float(layer.tally.read - before_it.read) / max(1, layer.tally.queries - before_it.queries)
            self.rows.append(read)
            layer.tally = before_it
