"""Freed memory stays with the process, where the C library is glibc."""

import subprocess
import sys

import pytest

from vcc.kept_memory import keep_freed_memory

FAULTS = """
import resource, sys
import torch
from vcc.kept_memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for _ in range(30):
    torch.ones(2_000_000), torch.ones(3_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def faults(how: str) -> int:
    """Pages that the system gave a process which makes and frees tensors."""
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="the C library is not glibc")
def test_memory_of_freed_tensors_is_used_again() -> None:
    assert faults("keep") < faults("return") - 20_000
