"""What is recorded must not read copies of weights that autocast keeps."""

import torch
from torch import nn

from vcc.cuda_graph import without_autocast_cache


def test_weights_are_cast_anew_and_the_cache_is_used_again_afterwards() -> None:
    layer, rows = nn.Linear(4, 4, bias=False), torch.ones(1, 4)

    def after_doubling() -> tuple[float, float]:
        with torch.no_grad():
            layer.weight.fill_(1)
        first = layer(rows)  # casts the weights, and maybe keeps the copy
        layer.weight.data.mul_(2)
        return float(first.detach()[0, 0]), float(layer(rows).detach()[0, 0])

    with torch.autocast("cpu", torch.bfloat16):
        assert after_doubling() == (4, 4), "the copy is old, which is what makes it dangerous"
        with without_autocast_cache():
            assert after_doubling() == (4, 8)
            assert not torch.is_autocast_cache_enabled()
        assert torch.is_autocast_cache_enabled()
