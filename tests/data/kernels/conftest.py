"""As the kernels of attention, this one runs in Triton's interpreter where there is no GPU."""

from tests.attention.kernels.conftest import device as device
