"""The paper's mu: how much the VIPs attend to each node, with the layer's own queries and keys."""

import torch
from torch import Tensor

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
