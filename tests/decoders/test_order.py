"""`order_by_key` is a balanced, deterministic permutation that puts alike keys side by side."""

import pytest
import torch

from vcc.decoders.order import order_by_key


def keys(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 64, 100, 1000, 1024])
def test_it_is_a_permutation(n: int) -> None:
    order = order_by_key(keys(2, 3, n, 8), 16)
    assert torch.equal(order.sort(2).values, torch.arange(n).expand(2, 3, n))


def test_it_is_deterministic_and_each_head_has_its_own() -> None:
    many = keys(2, 3, 100, 8)
    order = order_by_key(many, 16)
    assert torch.equal(order, order_by_key(many.clone(), 16))
    for element in range(2):
        for head in range(3):
            assert torch.equal(order_by_key(many[element, head], 16), order[element, head])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_clusters_become_leaves(dtype: torch.dtype) -> None:
    """Sixteen tight clusters of sixteen keys, mixed: every leaf is one of them. Squares are too large for float16."""
    centres = 100 * keys(16, 8)
    which = torch.arange(16).repeat(16)
    order = order_by_key((centres[which] + 0.01 * keys(256, 8, seed=1)).to(dtype), 16)
    leaves = which[order].view(16, 16)
    assert torch.equal(leaves, leaves[:, :1].expand_as(leaves))


def test_the_first_split_is_at_the_median_of_the_main_axis() -> None:
    """Against torch's own singular value decomposition."""
    stretched = keys(64, 8) * torch.tensor([9.0, 1, 1, 1, 1, 1, 1, 1], dtype=torch.float64)
    turned = stretched @ torch.linalg.qr(keys(8, 8, seed=2)).Q
    along = (turned - turned.mean(0)) @ torch.linalg.svd(turned - turned.mean(0)).Vh[0]
    lower = set((along < along.median()).nonzero()[:, 0].tolist()) | {int(along.argsort()[31])}
    halves = [set(half.tolist()) for half in order_by_key(turned, 32).view(2, 32)]
    assert lower in halves


def test_equal_keys_keep_the_order_of_the_text() -> None:
    assert torch.equal(order_by_key(torch.ones(50, 4), 8), torch.arange(50))
