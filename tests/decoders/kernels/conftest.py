"""As the kernels of attention, these run in Triton's interpreter where there is no GPU."""

from tests.attention.kernels.conftest import device as device
