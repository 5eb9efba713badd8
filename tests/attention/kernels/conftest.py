"""Where there is no GPU, Triton's interpreter runs the kernels, in Python. It must be asked for before Triton loads."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def device() -> str:
    """Where the kernels can run; skips where they cannot."""
    pytest.importorskip("triton", reason="Triton is not installed")
    if torch.cuda.is_available():
        return "cuda"
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    if not isinstance(tl.sum, interpreter.InterpretedFunction):
        pytest.skip("Triton was loaded before TRITON_INTERPRET=1 was set, so its interpreter cannot run")

    # The interpreter keeps bfloat16 as its 16 bits and multiplies those as integers: widen them first.
    plain = interpreter.InterpreterBuilder.create_dot

    def widened(handle: interpreter.TensorHandle) -> interpreter.TensorHandle:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self, a, b, *rest):
        return plain(self, widened(a), widened(b), *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot
    return "cpu"
