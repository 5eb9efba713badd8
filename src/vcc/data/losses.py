"""Losses that Hugging Face heads do not have: several right spans, and choices that differ in number."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vcc.data.collate import IGNORED, NULL_POSITION


def span_loss(start_logits: Tensor, end_logits: Tensor, spans: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """Mean over the batch of -log P(any right start), and of ends, averaged. Logits (B, n), spans (B, S, 2).

    Without spans the target is `NULL_POSITION`. With one span this is the Hugging Face loss. Without a mask, forbidden
    places must already have logits of -inf.
    """
    losses = []
    for logits, places in ((start_logits, spans[..., 0]), (end_logits, spans[..., 1])):
        logits = logits.float()  # (B, n)
        if attention_mask is not None:
            logits = logits.masked_fill(attention_mask == 0, -torch.inf)
        none = (places == IGNORED).all(1, keepdim=True)  # (B, 1)
        places = torch.where(none, NULL_POSITION, places)  # (B, S)
        right = torch.zeros_like(logits, dtype=torch.int8)
        right = right.scatter_add(1, places.clamp(min=0), (places != IGNORED).to(right.dtype))
        log_right = logits.masked_fill(right == 0, -torch.inf).logsumexp(1)  # (B,)
        losses.append(logits.logsumexp(1) - log_right)
    return torch.stack(losses).mean()


def choice_loss(logits: Tensor, labels: Tensor, choice_mask: Tensor) -> Tensor:
    """Cross entropy over the real choices only. Logits and mask (B, C), labels (B,)."""
    return cross_entropy(logits.float().masked_fill(~choice_mask, -torch.inf), labels, ignore_index=IGNORED)
