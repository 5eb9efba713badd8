"""What the interpreter cannot see: that the kernels compile for a GPU, and how often. No GPU is needed."""

import pytest

from tests.hopper import compiled_for_hopper

SCRIPT = """
from vcc.attention.scoring import RelativeBias
from vcc.attention.kernels import relative_attention as module

shape_of = module.shape_of
module.shape_of = lambda q, blocks: {**shape_of(q, blocks), "ASM": True}

def call(batch, r, biased, consecutive, window=-1):
    q, k, v, grad = (torch.randn(batch, r, 12, 64).to(torch.bfloat16).transpose(1, 2) for _ in range(4))
    relative = RelativeBias(torch.randn(32, 12))
    table, starts = (relative.table, relative.starts) if biased else (None, ())
    keys, positions = torch.zeros(batch, r + -r % module.EDGE), torch.zeros(batch, r)
    bias = module.Bias(keys, positions, table, None, 1.0, starts, window, 3, False, consecutive, 0.0)
    out, lse = module.forward(q, k, v, bias)
    module.backward(grad, q, k, v, out, lse, bias, biased)

for biased, consecutive, window in ((False, False, -1), (True, False, -1), (True, True, -1), (False, False, 64)):
    call(1, 9590, biased, consecutive, window)
    before = len(kernels)
    for batch, r in ((1, 1), (3, 1744), (16, 512)):
        call(batch, r, biased, consecutive, window)
    assert len(kernels) == before, "another length compiled another kernel"

for name, kernel in kernels.values():
    assert kernel.metadata.shared <= 227 * 1024, (name, kernel.metadata.shared)
    attends = name in ("_forward_kernel", "_query_kernel", "_key_kernel", "_near_kernel", "_neighbour_kernel")
    assert attends == ("wgmma.mma_async" in kernel.asm["ptx"]), name
print(sorted(name for name, _ in kernels.values()))
"""


@pytest.mark.slow
def test_kernels_compile_once_for_all_lengths_and_use_the_matrix_units_of_hopper():
    assert "_neighbour_kernel" in compiled_for_hopper(SCRIPT)
