"""The kernels of one step give what plain PyTorch gives."""

import dataclasses

import pytest
import torch

from tests.decoders.models import SMALL
from vcc.decoders.config import DecoderConfig
from vcc.decoders.interface import step
from vcc.decoders.kernel import step_by_kernel, why_no_kernel
from vcc.decoders.layer import TreeLayer

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2}


def filled(settings: DecoderConfig, n: int, heads: int, width: int, dtype: torch.dtype, device: str) -> TreeLayer:
    draw = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(2, heads, n, width, generator=draw, dtype=torch.float64) for _ in range(2))
    real = torch.ones(2, n, dtype=torch.bool)
    real[1, : n // 3] = False
    layer = TreeLayer(settings)
    layer.entered = True
    layer.update(keys.to(device, dtype), values.to(device, dtype))
    layer.note_padding(real.to(device))
    layer.settle()
    return layer


@pytest.mark.parametrize(
    ("n", "heads", "group", "width", "leaf", "wanted", "dtype"),
    [
        (150, 2, 3, 16, 4, 3, torch.float64),
        (150, 2, 1, 32, 8, 0, torch.float32),
        (150, 1, 5, 16, 4, 1000, torch.float64),
        (700, 1, 2, 16, 4, 9, torch.float64),  # more nodes than one stretch has
        (150, 2, 4, 64, 16, 2, torch.bfloat16),
        (9, 2, 3, 16, 4, 3, torch.float64),  # no tree yet
    ],
)
def test_kernels_equal_the_reference(
    device: str,
    n: int,
    heads: int,
    group: int,
    width: int,
    leaf: int,
    wanted: int,
    dtype: torch.dtype,
) -> None:
    if device == "cuda" and dtype == torch.float64:
        dtype = torch.float32
    settings = DecoderConfig(**SMALL | {"scales": (leaf, 1), "fresh": 16, "piece": 64}, budget=wanted)
    layer = filled(settings, n, heads, width, dtype, device)
    draw = torch.Generator().manual_seed(1)
    query = torch.randn(2, heads * group, 1, width, generator=draw, dtype=torch.float64).to(device, dtype)
    expected = step(layer, query, 1, width**-0.5, False)
    found, rows = step_by_kernel(layer, query, width**-0.5)
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=TOLERANCE[dtype])
    assert float(rows.double().mean()) == float(layer.rows_read)


def test_shared_trees_are_read_through_their_owners(device: str) -> None:
    settings = DecoderConfig(**SMALL, budget=3)
    layer = filled(settings, 150, 2, 16, torch.float32, device)
    layer.reorder_cache(torch.tensor([1, 0, 1], device=device))
    assert layer.owner is not None
    query = torch.randn(3, 4, 1, 16, generator=torch.Generator().manual_seed(1)).to(device)
    found, _ = step_by_kernel(layer, query, 0.25)
    torch.testing.assert_close(found, step(layer, query, 1, 0.25, False), rtol=0, atol=2e-5)


def test_what_the_kernels_cannot_do_is_said() -> None:
    layer = filled(DecoderConfig(**SMALL, mass=0.9), 150, 2, 16, torch.float32, "cpu")
    query = torch.zeros(2, 4, 1, 16)
    assert "fixed number" in str(why_no_kernel(query, layer.tree, layer.settings))
    settings = dataclasses.replace(layer.settings, mass=None)
    assert "2 tokens" in str(why_no_kernel(query.expand(-1, -1, 2, -1), layer.tree, settings))
    assert "powers of 2" in str(why_no_kernel(query[..., :12], layer.tree, settings))
