"""The scores by which nodes are opened: the paper's mu, the VIPs' attention with the layer's own queries and keys, or
another one. A score is a function and a row of `SCORES`."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vcc.core.rows import Rows, log_counts


def vip_attention(
    queries: Tensor, keys: Tensor, vips: Rows, nodes: Rows, scale: float, bias: Tensor | None = None
) -> Tensor:
    """Attention of the VIPs (B, H, p, d) to the nodes (B, H, m, d), averaged over heads and real VIPs: (B, m).

    With no VIP every node scores 0. `bias` (B or 1, H, p, m) is the layer's own position bias, if it has one.
    """
    dtype = torch.promote_types(queries.dtype, torch.float32)
    logits = (queries @ keys.mT).to(dtype) * scale
    if bias is not None:
        logits = logits + bias
    attention = (logits + log_counts(nodes.counts, dtype)[:, None, None]).softmax(-1)
    asking = (vips.counts > 0).to(dtype)
    share = asking / asking.sum(1, keepdim=True).clamp(min=1)
    # Not a matrix product, which autocast would round to bf16, where scores tie.
    return (attention * share[:, None, :, None]).sum(2).mean(1)


SHARPNESS = 20.0  # the inverse temperature that embedding models are trained with


def vip_similarity(vips: Rows, nodes: Rows) -> Tensor:
    """Similarity of the mean VIP and each node, as a softmax over the nodes: (B, m). With no VIP all score 0.

    For models trained to compare texts by the cosine of their mean states: finding passages needs no more training.
    """
    dtype = torch.promote_types(vips.hidden.dtype, torch.float32)
    asking = (vips.counts > 0).to(dtype)
    question = (vips.hidden.to(dtype) * asking[..., None]).sum(1, keepdim=True)
    cosine = (normalize(question, dim=2) * normalize(nodes.hidden.to(dtype), dim=2)).sum(2)
    # Nodes are not weighted by their counts: a mean represents its segment, however short it is.
    real = (nodes.counts > 0).to(dtype)
    return (SHARPNESS * cosine + log_counts(real, dtype)).softmax(1) * (asking.sum(1, keepdim=True) > 0)


# Each score is (attention, vips, nodes) -> (B, nodes), where `attention` is the layer's: (vips, nodes) -> (B, nodes).
Attention = Callable[[Rows, Rows], Tensor]
SCORES: dict[str, Callable[[Attention, Rows, Rows], Tensor]] = {
    "attention": lambda attention, vips, nodes: attention(vips, nodes),
    "similarity": lambda attention, vips, nodes: vip_similarity(vips, nodes),
}
