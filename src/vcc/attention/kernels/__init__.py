"""Optional fused CUDA kernels, imported only if Triton is installed; the plain function is the oracle."""
