"""Whether Triton's kernels can run on a device."""

import os
from importlib.util import find_spec

import torch

from vcc.constant_result import constant_result


@constant_result
def why_not_on(device: torch.device) -> str | None:
    """Why Triton's kernels cannot run; None if they can."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return None if major >= 8 else f"the GPU has compute capability {major}.{minor}; it must be at least 8.0"
    if os.environ.get("TRITON_INTERPRET") == "1":  # Triton runs its kernels in Python, for tests
        return None
    return f"the tensors are on {str(device)!r}, not on a CUDA device"
