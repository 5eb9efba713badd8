"""What do 8 bits gain on this machine: single products by each kernel, attention, and a layer of the bundled model?

    python -m benchmarks.eight_bits

Processor milliseconds for one window of 512 tokens on one thread, the best of --repeats.
"""

import argparse
import platform
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vcc.core.rows import Rows
from vcc.documents.shipped import bundled
from vcc.hosts.eight_bit_products import onednn_product, onnx_product
from vcc.hosts.eight_bits import MIDDLE, eight_bit_host
from vcc.kept_memory import keep_freed_memory

TOKENS, WINDOWS = 512, 4
SHAPES = ((384, 1152), (384, 384), (384, 1536), (1536, 384))  # inputs and outputs of a layer's four products


def milliseconds(work: Callable[[], Any], repeats: int) -> float:
    work()
    found = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return 1000 * min(found)


def kernels(inputs: int, outputs: int) -> dict[str, Callable[[], Any]]:
    """A product by each kernel; what this machine lacks raises when it is called."""
    hidden, weights = torch.randn(TOKENS, inputs), torch.randn(outputs, inputs)
    values = torch.randint(0, 256, (TOKENS, inputs), dtype=torch.uint8)
    whole, steps = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8), torch.ones(outputs)

    def in_eight(kernel: Any) -> Callable[[], Tensor]:
        made: list[Any] = []

        def work() -> Tensor:
            if not made:
                made.append(kernel(whole, steps))
            return made[0](values, MIDDLE)

        return work

    found: dict[str, Callable[[], Any]] = {"torch, 32 bits": lambda: F.linear(hidden, weights)}
    found["torch (oneDNN), 8 bits"] = in_eight(onednn_product)
    found["ONNX Runtime, 8 bits"] = in_eight(onnx_product)
    return found


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=4)
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    print(platform.machine(), "torch", torch.__version__)
    for inputs, outputs in SHAPES:
        for name, work in kernels(inputs, outputs).items():
            try:
                print(f"{inputs} -> {outputs}, {name}: {milliseconds(work, given.repeats):.1f} ms", flush=True)
            except (ImportError, RuntimeError, AttributeError) as error:
                print(f"{inputs} -> {outputs}, {name}: not here ({type(error).__name__})")
    q, k, v = torch.randn(3, 1, TOKENS, 12, 32).transpose(2, 3)
    print(f"attention: {milliseconds(lambda: F.scaled_dot_product_attention(q, k, v), given.repeats):.1f} ms")
    model, _ = bundled()
    plain = model.bert.host
    ids = torch.randint(1000, 20_000, (WINDOWS, TOKENS))
    rows = Rows(plain.embed({"input_ids": ids}, None), torch.ones(WINDOWS, TOKENS), torch.zeros_like(ids))
    for name, host in (("32 bits", plain), ("8 bits", eight_bit_host(plain, "int8"))):
        if host is None:
            print(f"a layer, {name}: no kernels here")
        else:
            took = milliseconds(partial(host.layer, 0, rows, consecutive=True), given.repeats)
            print(f"a layer, {name}: {took / WINDOWS:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
