"""Training windows without padding: the tokens of a batch stand in one row, and each sees those of its own window.

A mask keeps attention from its fastest kernel, which instead takes the places where windows begin. On other devices the
windows are attended to one by one.
"""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.modeling_outputs import QuestionAnsweringModelOutput

import vcc
from shipped_model.practice import compile_layers

NAME = "windows_in_a_row"  # of the attention, for transformers


class PackedWindows:
    """A BERT that reads windows (W, n) without their padding, whose logits are 0. It shares the weights of `model` and
    trains when that trains. Whole texts are read by `model` itself."""

    def __init__(self, model: Any, compiled: bool = False) -> None:
        self.model, plain = model, vcc.unwrap(model)
        if plain.config.attention_probs_dropout_prob:
            raise ValueError(
                f"attention_probs_dropout_prob is {plain.config.attention_probs_dropout_prob}: it must be 0"
            )
        shared = {id(tensor): tensor for tensor in (*plain.parameters(), *plain.buffers())}
        self.plain = copy.deepcopy(plain, shared)
        self.plain.set_attn_implementation(NAME)
        if compiled:
            compile_layers(self.plain)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def config(self) -> Any:
        return self.model.config

    def __call__(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> QuestionAnsweringModelOutput:
        real = attention_mask.bool()
        ends = real.sum(1).cumsum(0, dtype=torch.int32)
        places = torch.arange(real.shape[1], device=real.device).expand_as(real)
        out = self.plain.train(self.model.training)(
            input_ids=input_ids[real][None],
            token_type_ids=token_type_ids[real][None],
            position_ids=places[real][None],
            edges=F.pad(ends, (1, 0)),
            longest=self.config.max_position_embeddings,
        )
        start, end = (
            side.new_zeros(real.shape).masked_scatter(real, side) for side in (out.start_logits, out.end_logits)
        )
        return QuestionAnsweringModelOutput(start_logits=start, end_logits=end)


def attend_in_windows(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, *, edges: Tensor, longest: int, **_: Any
) -> tuple[Tensor, None]:
    """(1, T, heads, d) from queries, keys and values (1, heads, T, d) of windows with these edges (W + 1,)."""
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    if q.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        q, k, v = (part.to(torch.bfloat16) for part in (q, k, v))
        mixed = varlen_attn(q, k, v, edges, edges, longest, longest)
        assert isinstance(mixed, Tensor)  # alone, as asked for
        return mixed[None].to(query.dtype), None
    return one_by_one(q, k, v, edges)[None], None


@torch.compiler.disable  # each batch has windows of other sizes
def one_by_one(q: Tensor, k: Tensor, v: Tensor, edges: Tensor) -> Tensor:
    rows = zip(*(part.transpose(0, 1).split(edges.diff().tolist(), 1) for part in (q, k, v)), strict=True)
    return torch.cat([F.scaled_dot_product_attention(*row) for row in rows], 1).transpose(0, 1)


AttentionInterface.register(NAME, attend_in_windows)
