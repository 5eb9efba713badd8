"""Kernels compiled for a GPU that is not there: what the interpreter cannot see. In a process of its own, because
Triton decides once whether it interprets."""

import os
import subprocess
import sys

import pytest

HOPPER = """
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
"""


def compiled_for_hopper(script: str) -> str:
    """What a script prints in which kernels are compiled instead of run; `kernels` holds each with its name."""
    pytest.importorskip("triton", reason="Triton is not installed")
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, "-c", HOPPER + script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
