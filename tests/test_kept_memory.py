"""Freed memory stays with the process: by glibc's settings, or because torch has an allocator of its own (aarch64)."""

import subprocess
import sys

import pytest

from vcc.kept_memory import keep_freed_memory

FAULTS = """
import resource
import torch
from vcc.kept_memory import keep_freed_memory
keep_freed_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = faults()
for _ in range(30):
    torch.ones(2_000_000), torch.ones(3_000_000)
print((faults() - before) * resource.getpagesize())
"""


@pytest.mark.skipif(not keep_freed_memory(), reason="the C library is not glibc")
def test_memory_of_freed_tensors_is_used_again() -> None:
    """The system gives a process that makes and frees 600 MB of tensors, 20 MB at a time, memory for a few of them."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 150e6
