"""A step of one token as a CUDA graph, without Python, which takes many times as long as the kernels.

Recording is the same for all models. What stays in place while a text is generated differs: `StepCache` here is for
encoder-decoders, `causal_steps.py` for causal models.
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

# Arguments of `generate`'s steps; any other needs something that the graph does not compute.
GIVEN = {"decoder_input_ids", "past_key_values", "encoder_outputs", "attention_mask"}
GIVEN |= {"vip_mask", "use_cache", "return_dict"}  # the first of these is for the encoder, which has run


def is_step(given: dict[str, Any], ids: str, known: set[str]) -> bool:
    """Whether a forward has one token per sequence and only known arguments."""
    tokens = given.get(ids)
    asked = {name for name, value in given.items() if value is not None and value is not False}
    alone = asked <= known and given.get("return_dict") is not False
    return tokens is not None and tokens.shape[1] == 1 and alone and not torch.is_grad_enabled()


class RecordedStep:
    """The graph of a step, the tensors it reads its input from, and the logits it writes."""

    def __init__(self) -> None:
        self.graph: Any = None
        self.refused = False  # whether recording has failed

    def record(self, work: Callable[[dict[str, Tensor]], Tensor], given: dict[str, Tensor]) -> None:
        """Record `work`, which computes logits for inputs like those `given`."""
        with torch.inference_mode(False):  # what is made in that mode could not be written to outside of it
            self.inputs = {name: tensor.clone() for name, tensor in given.items()}
        try:
            self.graph, self.logits = record(lambda: work(self.inputs))
        except RuntimeError as error:  # an operation waited for the device
            self.refused = True
            warn_not_recorded("steps are", error)

    def replay(self, given: dict[str, Tensor]) -> Tensor:
        for name, tensor in self.inputs.items():
            tensor.copy_(given[name])
        self.graph.replay()
        return self.logits.clone()

    def forget(self) -> None:
        self.graph = None


class StepCache(EncoderDecoderCache):
    """A static cache for the decoder's tokens, the given one for the encoder's; replays from the second step on."""

    is_compileable = False  # `generate` would compile the steps; they are recorded

    def __init__(self, layers: int, room: int, across: Cache) -> None:
        self.written = [StaticLayer(room) for _ in range(layers)]
        super().__init__(Cache(layers=list(self.written)), across)
        self.recorded = RecordedStep()

    def can_step(self, given: dict[str, Any]) -> bool:
        """Whether a forward is a plain step of one token."""
        if self.recorded.refused or not is_step(given, "decoder_input_ids", GIVEN):
            return False
        if self.recorded.graph is not None:
            return given["decoder_input_ids"].shape == self.recorded.inputs["decoder_input_ids"].shape
        return len(self.is_updated) == len(self) and all(self.is_updated.values()) and self.can_record()

    def can_record(self) -> bool:
        """Whether everything runs on a CUDA device without waiting for it."""
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
        if self.recorded.graph is None:
            self.record(forward, given)
        if self.recorded.graph is None:
            return forward(**given)
        logits = self.recorded.replay(given)
        for layer, rows in zip(self.trees, self.rows, strict=True):
            layer.note_rows(layer.length - 1, 1, rows)
        return Seq2SeqLMOutput(logits=logits, past_key_values=self)  # type: ignore[arg-type]

    def record(self, forward: Callable[..., Any], given: dict[str, Any]) -> None:
        lengths: list[Any] = [layer.cumulative_length for layer in self.written]
        before = [length.clone() for length in lengths]
        ids = given["decoder_input_ids"]
        slots = torch.arange(self.written[0].max_cache_len, device=ids.device).expand(len(ids), -1)

        def work(inputs: dict[str, Tensor]) -> Tensor:
            # The trees know which tokens are padding; reading a mask would wait for the device.
            # Without a mask for the decoder, BART would read the cache's length, which waits as well.
            fixed = {**given, **inputs, "attention_mask": None}
            return forward(**fixed, decoder_attention_mask=(slots <= lengths[0]).long()).logits

        counted = [layer.tally for layer in self.trees]
        self.recorded.record(work, {"decoder_input_ids": ids})
        for length, was in zip(lengths, before, strict=True):
            length.copy_(was)
        self.rows = []  # every step reads the same number
        for layer, tally in zip(self.trees, counted, strict=True):
            read = float(layer.tally.read - tally.read) / max(1, layer.tally.queries - tally.queries)
            self.rows.append(read)
            layer.tally = tally
