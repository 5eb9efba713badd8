"""What the interpreter cannot see: that the kernel compiles for a GPU, once for all rows. No GPU is needed."""

import pytest

from tests.hopper import compiled_for_hopper

SCRIPT = """
from vcc.data.kernels.best_spans import choose_spans

for rows, n, rounds in ((1, 1, 1), (3, 17, 17), (114, 488, 20), (2, 12_000, 20), (1, 131_072, 20)):
    choose_spans(torch.zeros(rows, n), torch.zeros(rows, n), rounds, 256)
assert len(kernels) == 1, "another shape compiled another kernel"
[(name, kernel)] = kernels.values()
assert "bar.sync" in kernel.asm["ptx"] and "ld.global.nc" not in kernel.asm["ptx"]
print(name)
choose_spans(torch.zeros(1, 200_000), torch.zeros(1, 200_000), 20, 1024)  # the longest it is given
for name, kernel in kernels.values():
    assert kernel.metadata.shared <= 227 * 1024, (name, kernel.metadata.shared)
"""


@pytest.mark.slow
def test_the_kernel_compiles_for_hopper() -> None:
    assert "take_spans" in compiled_for_hopper(SCRIPT)
