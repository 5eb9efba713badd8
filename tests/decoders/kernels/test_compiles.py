"""What the interpreter cannot see: that the kernels compile for a GPU, once for all lengths. No GPU is needed."""

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

from vcc.decoders.config import DecoderConfig
from vcc.decoders.kernel import step_by_kernel
from vcc.decoders.layer import TreeLayer

def call(batch, n, wanted=32):
    layer = TreeLayer(DecoderConfig(budget=wanted))
    layer.entered = True
    keys = torch.randn(batch, 8, n, 128).to(torch.bfloat16)
    layer.update(keys, keys)
    layer.note_padding(None)
    layer.settle()
    step_by_kernel(layer, torch.zeros(batch, 32, 1, 128, dtype=torch.bfloat16), 0.1)

call(1, 2048)
before = len(kernels)
call(2, 3088)  # also more sequences
same = len(kernels) - before
for name, kernel in kernels.values():
    assert kernel.metadata.shared <= 227 * 1024, (name, kernel.metadata.shared)
    assert kernel.metadata.num_warps == 4 or name == "choose_nodes"
assert same == 0, sorted(kernels.values())
print(sorted(name for name, _ in kernels.values()), same)
"""


@pytest.mark.slow
def test_kernels_compile_for_hopper() -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for kernel in ("attend_nodes", "attend_rows", "choose_nodes", "join", "share_nodes"):
        assert kernel in done.stdout
