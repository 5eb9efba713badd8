"""Products in 8 bits are those of whole numbers, by every kernel that this machine has."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from vcc.hosts import eight_bit_products
from vcc.hosts.eight_bit_products import Product, fast_here, onednn_product, onnx_product, varint


def onnx_or_skip(weights: Tensor, steps: Tensor) -> Product:
    pytest.importorskip("onnxruntime")
    return onnx_product(weights, steps)


@pytest.mark.parametrize("kernel", [onednn_product, onnx_or_skip])
@pytest.mark.parametrize("zero", [128, 16])
def test_a_product_is_that_of_whole_numbers(kernel: Callable[[Tensor, Tensor], Product], zero: int) -> None:
    torch.manual_seed(0)
    weights, steps = torch.randint(-127, 128, (48, 64), dtype=torch.int8), torch.rand(48)
    values = torch.randint(0, 256, (5, 64), dtype=torch.uint8)
    expected = (values.long() - zero) @ weights.long().t() * steps
    try:
        found = kernel(weights, steps)(values, zero)
    except (RuntimeError, AttributeError, NotImplementedError):
        pytest.skip("this build of torch has no such kernel")
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-3)


def test_numbers_are_written_seven_bits_at_a_time() -> None:
    """The examples of the description of protocol buffers."""
    assert varint(1) == b"\x01" and varint(150) == b"\x96\x01" and varint(300) == b"\xac\x02"


def test_without_its_package_an_arm_processor_is_not_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eight_bit_products.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(eight_bit_products.platform, "system", lambda: "Linux")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"dot": True}, raising=False)
    for installed in (True, False):
        monkeypatch.setattr(eight_bit_products, "find_spec", lambda name, there=installed: there or None)
        assert fast_here() is installed
    monkeypatch.setattr(eight_bit_products, "find_spec", lambda name: True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"dot": False}, raising=False)
    assert not fast_here()
