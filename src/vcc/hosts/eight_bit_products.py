"""Products of matrices in 8 bits, by the kernels of this machine.

On x86-64 they are oneDNN's, as torch's own compiler calls them. On aarch64 torch has none that use the processor's dot
products, and ONNX Runtime has: 3 to 4 times as fast as torch in 32 bits (`benchmarks/eight_bits.py`).
"""

import platform
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Rounded inputs (n, D) and the level that stands for 0 -> (n, E) in 32 bits.
Product = Callable[[Tensor, int], Tensor]


def product_with(weights: Tensor, steps: Tensor) -> Product:
    """The product with weights (E, D) in 8 bits, each row times its step (E,)."""
    return onnx_product(weights, steps) if is_arm() else onednn_product(weights, steps)


def fast_here() -> bool:
    """Whether the processor adds up products of 8 bits in 32, and the kernels for it are installed. Older processors
    add them in 16, which can overflow."""
    if is_arm():
        # On a Mac, torch's products in 32 bits run on a unit of their own.
        able = getattr(torch.cpu, "get_capabilities", dict[str, Any])()
        return bool(platform.system() == "Linux" and able.get("dot") and find_spec("onnxruntime"))
    return bool(torch.backends.mkldnn.is_available() and getattr(torch.cpu, "_is_vnni_supported", bool)())


def is_arm() -> bool:
    return platform.machine().lower() in ("aarch64", "arm64")


def onednn_product(weights: Tensor, steps: Tensor) -> Product:
    packed = torch.ops.onednn.qlinear_prepack(weights, None)
    zeros = torch.zeros(len(weights), dtype=torch.int32)

    def product(values: Tensor, zero: int) -> Tensor:
        return torch.ops.onednn.qlinear_pointwise(
            values, 1.0, zero, packed, steps, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )

    return product


def onnx_product(weights: Tensor, steps: Tensor) -> Product:
    """One session serves all weights: it packs them in each call, which takes a twentieth of the product."""
    one = np.ones((), np.float32)
    given = {"weights": weights.t().contiguous().numpy(), "steps": steps.numpy(), "step": one}
    run = session(torch.get_num_threads()).run

    def product(values: Tensor, zero: int) -> Tensor:
        (found,) = run(None, {"values": values.numpy(), "zero": np.array(zero, np.uint8), **given})
        return torch.from_numpy(found)

    return product


@lru_cache(maxsize=1)
def session(threads: int) -> Any:
    """ONNX Runtime with a graph of one node: `values - zero` times `weights`, in 32 bits."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # torch's threads work between products
    return onnxruntime.InferenceSession(graph(), options, providers=["CPUExecutionProvider"])


FLOAT, UINT8, INT8 = 1, 2, 3  # types of numbers in ONNX
INPUTS = {"values": UINT8, "weights": INT8, "step": FLOAT, "steps": FLOAT, "zero": UINT8}


def graph() -> bytes:
    """The graph as a file of ONNX, a message of protocol buffers. The numbers are those of its fields."""
    names = b"".join(message(1, name) for name in INPUTS)
    node = names + message(2, "found") + message(4, "MatMulIntegerToFloat") + message(7, "com.microsoft")
    inputs = b"".join(message(11, tensor(name, kind)) for name, kind in INPUTS.items())
    whole = message(1, node) + message(2, "product") + inputs + message(12, tensor("found", FLOAT))
    versions = message(8, number(2, 17)) + message(8, message(1, "com.microsoft") + number(2, 1))
    return number(1, 8) + message(7, whole) + versions


def tensor(name: str, kind: int) -> bytes:
    """A tensor's name and type."""
    return message(1, name) + message(2, message(1, number(1, kind)))


def message(field: int, value: bytes | str) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(content)) + content


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def varint(value: int) -> bytes:
    """A number in pieces of 7 bits, the lowest first."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)
