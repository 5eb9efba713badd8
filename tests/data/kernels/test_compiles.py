"""What the interpreter cannot see: that the kernel compiles for a GPU, once for all rows. No GPU is needed."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver, jit

class Hopper:
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device=None): return 0

driver.set_active(Hopper())
run, kernels = jit.JITFunction.run, {}

def compile_only(self, *args, grid, warmup, **options):
    kernel = run(self, *args, grid=grid, warmup=True, **options)
    kernels[kernel.hash] = (self.__name__, kernel)

jit.JITFunction.run = compile_only

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
    pytest.importorskip("triton", reason="Triton is not installed")
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "take_spans" in done.stdout
